package state_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

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

func TestChooseList(t *testing.T) {
	for _, tc := range []struct{ name, stored, configured, mode, want string }{
		{"a new group", "", "1 a1 b2", "Majority", "save 1 a1 b2"},
		{"a new member with previous", "", "3 a1 b2 after 2 a1", "Majority", "save 3 a1 b2 after 2 a1 floor 99"},
		{"previous is the first list", "", "2 a1 b2 after 1 a1", "Strict", "save 2 a1 b2 after 1 a1"},
		{"the floor is specified", "", "3 a1 b2 after 2 a1 floor 7", "Majority", "save 3 a1 b2 after 2 a1 floor 7"},
		{
			"a new member without previous", "", "3 a1 b2", "Majority",
			"previous must be the list of version 2, because version 3 is the first one of this agent",
		},
		{
			"a new member without previous in Strict", "", "3 a1 b2", "Strict",
			"previous must be the list of version 2, because version 3 is the first one of this agent",
		},
		{"a new member without previous in Available", "", "3 a1 b2", "Available", "save 3 a1 b2"},

		{"a restart", "3 a1 b2 after 2 a1 floor 7", "3 a1 b2", "Majority", "3 a1 b2 after 2 a1 floor 7"},
		{"a restart with the first list", "1 a1 b2", "1 a1 b2", "Majority", "1 a1 b2"},
		{"a new address", "3 a1 b2 after 2 a1 b3 floor 7", "3 a1@x b2", "Majority", "save 3 a1@x b2 after 2 a1@x b3 floor 7"},
		{"a member has departed", "3 a1 b2 after 2 a1 c3 floor 129023", "3 a1 b2 gone c floor 129839", "Majority", "save 3 a1 b2 after 2 a1 c3 gone c floor 129839"},
		{"a member has departed in Available", "3 a1 b2 after 2 a1 c3 floor 7", "3 a1 b2 gone c", "Available", "save 3 a1 b2 after 2 a1 c3 gone c floor 7"},
		{
			"a member has departed, and the floor is what members may have reached above the one before", "3 a1 b2 after 2 a1 c3 floor 129023",
			"3 a1 b2 gone c floor 129838", "Majority",
			"floor must be at least 129839, because c has departed, got 129838: stop the departed members, and then use the number that conclave-agent floor prints",
		},
		{
			"another member has departed, and the floor is the one before", "3 a1 b2 after 2 a1 c3 d4 gone c floor 129023",
			"3 a1 b2 gone c d floor 129023", "Strict",
			"floor must be at least 129839, because d has departed, got 129023: stop the departed members, and then use the number that conclave-agent floor prints",
		},
		{
			"a member has departed, without a floor", "1 a1 b2 c3", "2 a1 b2 gone c", "Majority",
			"floor must be at least 12015, because c has departed, got 0: stop the departed members, and then use the number that conclave-agent floor prints",
		},
		{"the departed are the same after a restart", "3 a1 b2 after 2 a1 c3 gone c floor 7", "3 a1 b2 gone c floor 5", "Majority", "3 a1 b2 after 2 a1 c3 gone c floor 7"},
		{"the same previous as stored", "3 a1 b2 after 2 a1 floor 7", "3 a1 b2 after 2 a1", "Majority", "3 a1 b2 after 2 a1 floor 7"},
		{"a higher floor replaces a lower one", "3 a1 b2 after 2 a1 floor 7", "3 a1 b2 floor 9", "Majority", "save 3 a1 b2 after 2 a1 floor 9"},
		{"a lower floor is ignored", "3 a1 b2 after 2 a1 floor 7", "3 a1 b2 floor 5", "Majority", "3 a1 b2 after 2 a1 floor 7"},
		{
			"a departed process was no member", "3 a1 b2 after 2 a1 floor 7", "3 a1 b2 gone x floor 102463", "Majority",
			"departed must name members of version 2, got x",
		},
		{"departed without previous", "3 a1 b2", "3 a1 b2 gone a", "Available", "departed must be empty, because the list before version 3 is unknown, got a"},
		{
			"another list of the same version", "3 a1 b2 after 2 a1", "3 a1 b3", "Majority",
			"names, priorities or their order changed, but version is still 3: increase version to 4",
		},
		{
			"another previous of the same version", "3 a1 b2 after 2 a1", "3 a1 b2 after 2 a1 c3", "Majority",
			"previous must be the list that version 3 succeeded on this agent: restore previous, or remove it",
		},

		{"the next list", "3 a1 b2 after 2 a1 gone a floor 7", "4 a1 c3", "Majority", "save 4 a1 c3 after 3 a1 b2 floor 99"},
		{"the second list", "1 a1 b2", "2 a1 c3", "Majority", "save 2 a1 c3 after 1 a1 b2"},
		{"the next list, and a new address", "1 a1 b2", "2 a1@x c3 gone b floor 102463", "Majority", "save 2 a1@x c3 after 1 a1@x b2 gone b floor 102463"},
		{"the next list has the stored one as previous", "3 a1 b2", "4 a1 c3 after 3 a1 b2 floor 8", "Majority", "save 4 a1 c3 after 3 a1 b2 floor 8"},
		{
			"the next list has another one as previous", "3 a1 b2", "4 a1 c3 after 3 a1 b3", "Majority",
			"previous must be the list of version 3 that is in force: correct previous, or remove it",
		},
		{
			"a jump", "3 a1 b2", "5 a1 c3", "Majority",
			"version must be 4, or previous must be the list of version 4, got version 5 after 3",
		},
		{"a jump with previous", "3 a1 b2", "5 a1 c3 after 4 a1 b9", "Majority", "save 5 a1 c3 after 4 a1 b9 floor 99"},

		{
			"an older version", "5 a1 b2 after 4 a1 floor 7", "3 a1 c3", "Majority",
			"5 a1 b2 after 4 a1 floor 7 (configured version 3 is older than version 5, which this agent has adopted: " +
				"using version 5; update the configuration to version 5, or 6 if the members change)",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mode, err := office.ParseMode(tc.mode)
			must.Succeed(t, err)
			stored := list(tc.stored)
			choice, err := state.ChooseList(state.Known{Stored: stored, Clock: 99}, *list(tc.configured), mode)
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				if choice.Save {
					got = "save "
				}
				got += listText(choice.List)
				if choice.Warning != "" {
					got += " (" + choice.Warning + ")"
				}
			}
			expect.Equal(t, got, tc.want)
			if stored != nil && listText(*stored) != tc.stored {
				t.Errorf("the stored list changed to %s", listText(*stored))
			}
			if err == nil && choice.Warning == "" {
				// After a restart, the same file leads to the same list.
				again, err := state.ChooseList(state.Known{Stored: &choice.List, Clock: 100}, *list(tc.configured), mode)
				if err != nil || again.Save || listText(again.List) != listText(choice.List) {
					t.Errorf("after a restart: %+v, %v", again, err)
				}
			}
		})
	}
}

// TestFloorMustFitRunningGroup: a group that runs knows a term, which the departed members may
// have granted, and its agent's clock is right.
func TestFloorMustFitRunningGroup(t *testing.T) {
	const clock, term, day = 500_000, 400_000, 2_160_000 << 4
	stored := list("1 a1 b2 c3")
	for floor, want := range map[election.Term]string{
		term - 1: "floor must be at least 400000, because c has departed, got 399999: stop the departed members, " +
			"and then use the number that conclave-agent floor prints",
		term:              "",
		clock + 2*day:     "",
		clock + 2*day + 1: "floor must be at most 69620000, which is two days ahead of the clock of this agent, got 69620001: use the number that conclave-agent floor prints",
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
		Previous: &control.PreviousList{Version: 2, Members: []control.Member{{Name: "a", Priority: 1}, {Name: "c", Priority: 3}}},
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
