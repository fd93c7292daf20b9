package script_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/electiontest/script"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// An error in a script is part of the output.
func TestErrorsAreReported(t *testing.T) {
	for commands, want := range map[string]string{
		"\n":         "error: an empty command\n",
		"elect":      "error: unknown command \"elect\"\n",
		"campaign 1": "error: there is no process 1\n",
		"deliver":    "error: no such message in flight\n",
		"group algorithm=Raft n=2": "error: unknown algorithm \"Raft\": choose one of Bully, StatusTable, " +
			"RingAllIDs, RingChampion, RingActiveList, RingSkip\n",
		"group algorithm=Bully":             "error: a member list needs at least one member\n",
		"inject kind=HELLO to=1":            "error: unknown kind \"HELLO\"\n",
		"inject kind=OK to=1":               "error: there is no process 1\n",
		"group algorithm=Bully n=1 wrong=x": "error: unknown mutation \"x\"\n",
	} {
		expect.Equalf(t, script.New(nil).Run(commands), want, "%q", commands)
	}
}

// endlessResponder is a machine that answers every message with a message to itself.
type endlessResponder struct{ election.Machine }

func (endlessResponder) Step(_ election.Input, out *election.Output) {
	out.Send = append(out.Send, election.Message{Kind: election.OK, From: 1, To: 1})
}

func TestDeliverAllIsLimited(t *testing.T) {
	group := script.New(
		script.Mutations{"chatter": func(m election.Machine) election.Machine { return endlessResponder{m} }})
	group.Run("group algorithm=Bully n=1 wrong=chatter\ncampaign 1")
	expect.Equal(t, group.Run("deliver all quietly"), "error: the messages never end\n")
}
