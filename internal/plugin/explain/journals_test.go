package explain

import (
	"fmt"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/pluginenv"
	"github.com/conclave-dev/conclave/internal/transcript"
)

func TestJournalsThatCannotBeReadAreMissing(t *testing.T) {
	journals, missing := ReadJournals(t.Context(), pluginenv.JournalGroup(), pluginenv.ForwardToAgents(t))
	if len(journals) != 1 || journals[0].Agent != "ledger-0" {
		t.Errorf("got journals %+v, want that of ledger-0", journals)
	}
	want := []transcript.Missing{
		{Agent: "ledger-1", Reason: "its agent is too old to keep a journal: create the pod again"},
		{Agent: "ledger-2", Reason: `its agent is newer than this plugin, which doesn't know "surprise": update the plugin`},
		{Agent: "ledger-3", Reason: "the agent has left the group"},
		{Agent: "ledger-4", Reason: `pods "ledger-4" not found`},
	}
	if fmt.Sprint(missing) != fmt.Sprint(want) {
		t.Errorf("got missing journals %v, want %v", missing, want)
	}
}

func TestExplainNamesTheTermsOfTheJournals(t *testing.T) {
	_, err := Elections(t.Context(), pluginenv.JournalGroup(), 8, 1, pluginenv.ForwardToAgents(t))
	if want := "the agents' journals have no election in term 8; the latest terms are 6, 7"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
	if e, err := Elections(t.Context(), pluginenv.JournalGroup(), 7, 10, pluginenv.ForwardToAgents(t)); err != nil || len(e) != 1 || e[0].Term != 7 || len(e[0].Missing) != 4 {
		t.Errorf("got %+v, %v, want only the election in term 7", e, err)
	}
	if e, err := Elections(t.Context(), pluginenv.JournalGroup(), 0, 10, pluginenv.ForwardToAgents(t)); err != nil || len(e) != 2 || e[0].Term != 7 || e[1].Term != 6 {
		t.Errorf("got %+v, %v, want both elections, the newest first", e, err)
	}
	if e, err := Elections(t.Context(), pluginenv.JournalGroup(), 0, 1, pluginenv.ForwardToAgents(t)); err != nil || len(e) != 1 || e[0].Term != 7 {
		t.Errorf("got %+v, %v, want only the last election", e, err)
	}
}
