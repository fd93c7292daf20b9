package state_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// list reads "3 a1 b2@moved after 2 a1 gone a floor 7".
func list(text string) *control.List {
	if text == "" {
		return nil
	}
	l := &control.List{}
	text, floor, _ := strings.Cut(text, " floor ")
	text, departed, _ := strings.Cut(text, " gone ")
	text, previous, _ := strings.Cut(text, " after ")
	words := strings.Fields(text)
	l.Version = uint32(number(words[0]))
	for _, word := range words[1:] {
		m := control.Member{Name: word[:1], Priority: uint32(word[1] - '0'), Address: "at-" + word[:1]}
		if _, to, ok := strings.Cut(word, "@"); ok {
			m.Address = to
		}
		l.Members = append(l.Members, m)
	}
	if previous := list(previous); previous != nil {
		l.Previous = &control.PreviousList{Version: previous.Version, Members: previous.Members}
	}
	l.Departed = strings.Fields(departed)
	if floor != "" {
		l.Floor = number(floor)
	}
	return l
}

func number(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		panic(err)
	}
	return n
}

func listText(l control.List) string {
	var b strings.Builder
	fmt.Fprint(&b, l.Version)
	for _, m := range l.Members {
		fmt.Fprintf(&b, " %s%d", m.Name, m.Priority)
		if m.Address != "at-"+m.Name {
			fmt.Fprintf(&b, "@%s", m.Address)
		}
	}
	if l.Previous != nil {
		fmt.Fprintf(&b, " after %s", listText(control.List{Version: l.Previous.Version, Members: l.Previous.Members}))
	}
	if len(l.Departed) > 0 {
		fmt.Fprintf(&b, " gone %s", strings.Join(l.Departed, " "))
	}
	if l.Floor > 0 {
		fmt.Fprintf(&b, " floor %d", l.Floor)
	}
	return b.String()
}

// TestChooseList: a case has the safety mode, the list that is stored, if there is one, and the list of the
// configuration. With -rewrite, the test replaces the results in its file.
func TestChooseList(t *testing.T) {
	datadriven.RunTest(t, "testdata/choices.txt", func(t *testing.T, d *datadriven.TestData) string {
		mode, err := office.ParseMode(d.CmdArgs[0].Key)
		must.Succeed(t, err)
		texts := map[string]string{}
		for line := range strings.SplitSeq(d.Input, "\n") {
			name, text, _ := strings.Cut(line, " ")
			texts[name] = text
		}
		stored, configured := list(texts["stored"]), list(texts["configured"])
		choice, err := state.ChooseList(state.Known{Stored: stored, Clock: 99}, *configured, mode)
		if stored != nil {
			expect.Equalf(t, listText(*stored), texts["stored"], "stored list after the choice")
		}
		if err != nil {
			return err.Error() + "\n"
		}
		got := listText(choice.List)
		if choice.Save {
			got = "save " + got
		}
		if choice.Warning != "" {
			return got + " (" + choice.Warning + ")\n"
		}
		// After a restart, the same file leads to the same list.
		again, err := state.ChooseList(state.Known{Stored: &choice.List, Clock: 100}, *configured, mode)
		if err != nil || again.Save || listText(again.List) != listText(choice.List) {
			t.Errorf("after a restart: %+v, %v", again, err)
		}
		return got + "\n"
	})
}

// TestFloorMustFitRunningGroup: a group that runs knows a term, which the departed members may
// have granted, and its agent's clock is right.
func TestFloorMustFitRunningGroup(t *testing.T) {
	const clock, term, day = 500_000, 400_000, 2_160_000 << 4
	stored := list("1 a1 b2 c3")
	for floor, want := range map[election.Term]string{
		term - 1: "floor must be at least 400000, because c has departed, got 399999: stop the departed members, " +
			"and then use the number that conclave-agent floor prints",
		term:          "",
		clock + 2*day: "",
		clock + 2*day + 1: "floor must be at most 69620000, which is two days ahead of the clock of this agent, got " +
			"69620001: use the number that conclave-agent floor prints",
	} {
		next := *list("2 a1 b2 gone c")
		next.Floor = uint64(floor)
		_, err := state.ChooseList(state.Known{Stored: stored, Clock: clock, Term: term}, next, office.Strict)
		if got := fmt.Sprint(err); want != "" && got != want || want == "" && err != nil {
			t.Errorf("floor %d: got %v\nwant %s", floor, err, want)
		}
	}
}

// TestFloorOfOperatorIsAccepted: it may be only a little above the one before, because the
// operator's clock is behind it.
func TestFloorOfOperatorIsAccepted(t *testing.T) {
	stored := control.List{
		Version: 3, Members: []control.Member{{Name: "a", Priority: 1}}, Floor: 129023,
		Previous: &control.PreviousList{
			Version: 2, Members: []control.Member{{Name: "a", Priority: 1}, {Name: "c", Priority: 3}},
		},
	}
	configured := stored
	configured.Departed, configured.Floor = []string{"c"}, 129055
	known := state.Known{Stored: &stored, Clock: 99, Term: 5000}
	if _, err := state.ChooseList(known, configured, office.Majority); err == nil {
		t.Error("in a file: got no error, want one about the floor")
	}
	known.FromOperator = true
	if choice, err := state.ChooseList(known, configured, office.Majority); err != nil || choice.List.Floor != 129055 {
		t.Errorf("from the operator: got %+v and error %v, want floor 129055", choice, err)
	}
}
