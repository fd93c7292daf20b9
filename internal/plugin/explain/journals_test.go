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
	_, err := LastElection(t.Context(), pluginenv.JournalGroup(), 8, pluginenv.ForwardToAgents(t))
	if want := "the agents' journals have no election in term 8; the latest terms are 7"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
	if e, err := LastElection(t.Context(), pluginenv.JournalGroup(), 7, pluginenv.ForwardToAgents(t)); err != nil || e.Coordinator != "ledger-0" || len(e.Missing) != 4 {
		t.Errorf("got %+v, %v, want the election in term 7", e, err)
	}
}
