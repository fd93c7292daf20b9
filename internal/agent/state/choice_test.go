package state_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// list reads "3 a1 b2@moved after 2 a1 gone a floor 7".
func list(text string) *config.List {
	if text == "" {
		return nil
	}
	l := &config.List{}
	text, floor, _ := strings.Cut(text, " floor ")
	text, departed, _ := strings.Cut(text, " gone ")
	text, previous, _ := strings.Cut(text, " after ")
	words := strings.Fields(text)
	l.Version = uint32(number(words[0]))
	for _, word := range words[1:] {
		m := config.Member{Name: word[:1], Priority: election.Priority(word[1] - '0'), Address: "at-" + word[:1]}
		if _, to, ok := strings.Cut(word, "@"); ok {
			m.Address = to
		}
		l.Members = append(l.Members, m)
	}
	l.Previous = list(previous)
	l.Departed = strings.Fields(departed)
	if floor != "" {
		l.Floor = election.Term(number(floor))
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

func written(l config.List) string {
	var b strings.Builder
	fmt.Fprint(&b, l.Version)
	for _, m := range l.Members {
		fmt.Fprintf(&b, " %s%d", m.Name, m.Priority)
		if m.Address != "at-"+m.Name {
			fmt.Fprintf(&b, "@%s", m.Address)
		}
	}
	if l.Previous != nil {
		fmt.Fprintf(&b, " after %s", written(*l.Previous))
	}
	if len(l.Departed) > 0 {
		fmt.Fprintf(&b, " gone %s", strings.Join(l.Departed, " "))
	}
	if l.Floor > 0 {
		fmt.Fprintf(&b, " floor %d", l.Floor)
	}
	return b.String()
}

func TestNext(t *testing.T) {
	for _, tc := range []struct{ name, kept, wanted, mode, want string }{
		{"a new group", "", "1 a1 b2", "Majority", "save 1 a1 b2"},
		{"a new member is told the list before", "", "3 a1 b2 after 2 a1", "Majority", "save 3 a1 b2 after 2 a1 floor 99"},
		{"before the list before was none", "", "2 a1 b2 after 1 a1", "Strict", "save 2 a1 b2 after 1 a1"},
		{"the floor is told", "", "3 a1 b2 after 2 a1 floor 7", "Majority", "save 3 a1 b2 after 2 a1 floor 7"},
		{
			"a new member isn't told", "", "3 a1 b2", "Majority",
			"version 3 is the first that this agent sees, so it must be told the list before: write version 2 as previous",
		},
		{
			"nor in Strict", "", "3 a1 b2", "Strict",
			"version 3 is the first that this agent sees, so it must be told the list before: write version 2 as previous",
		},
		{"in Available nobody asks", "", "3 a1 b2", "Available", "save 3 a1 b2"},

		{"a restart", "3 a1 b2 after 2 a1 floor 7", "3 a1 b2", "Majority", "3 a1 b2 after 2 a1 floor 7"},
		{"a restart of the first", "1 a1 b2", "1 a1 b2", "Majority", "1 a1 b2"},
		{"a move", "3 a1 b2 after 2 a1 b3 floor 7", "3 a1@x b2", "Majority", "save 3 a1@x b2 after 2 a1@x b3 floor 7"},
		{"somebody has departed", "3 a1 b2 after 2 a1 c3 floor 7", "3 a1 b2 gone c", "Majority", "save 3 a1 b2 after 2 a1 c3 gone c floor 7"},
		{"the file says the same of the past", "3 a1 b2 after 2 a1 floor 7", "3 a1 b2 after 2 a1", "Majority", "3 a1 b2 after 2 a1 floor 7"},
		{"a higher floor is as true", "3 a1 b2 after 2 a1 floor 7", "3 a1 b2 floor 9", "Majority", "save 3 a1 b2 after 2 a1 floor 9"},
		{"a lower one isn't", "3 a1 b2 after 2 a1 floor 7", "3 a1 b2 floor 5", "Majority", "3 a1 b2 after 2 a1 floor 7"},
		{
			"a stranger departs", "3 a1 b2 after 2 a1 floor 7", "3 a1 b2 gone x", "Majority",
			"x can't have departed: it isn't a member of version 2",
		},
		{"somebody departs from nothing", "3 a1 b2", "3 a1 b2 gone a", "Available", "a can't have departed: no list before version 3 is known"},
		{
			"another list of the same version", "3 a1 b2 after 2 a1", "3 a1 b3", "Majority",
			"names, priorities or their order changed, but version is still 3: raise version to 4",
		},
		{
			"another past of the same version", "3 a1 b2 after 2 a1", "3 a1 b2 after 2 a1 c3", "Majority",
			"previous isn't the list that version 3 came after here: leave previous as it was, or out",
		},

		{"the next list", "3 a1 b2 after 2 a1 gone a floor 7", "4 a1 c3", "Majority", "save 4 a1 c3 after 3 a1 b2 floor 99"},
		{"the second list", "1 a1 b2", "2 a1 c3", "Majority", "save 2 a1 c3 after 1 a1 b2"},
		{"the next list, and a move", "1 a1 b2", "2 a1@x c3 gone b", "Majority", "save 2 a1@x c3 after 1 a1@x b2 gone b"},
		{"the next list names the kept one", "3 a1 b2", "4 a1 c3 after 3 a1 b2 floor 8", "Majority", "save 4 a1 c3 after 3 a1 b2 floor 8"},
		{
			"the next list names another", "3 a1 b2", "4 a1 c3 after 3 a1 b3", "Majority",
			"previous isn't the list of version 3 that is in force: write that one, or leave previous out",
		},
		{
			"a jump", "3 a1 b2", "5 a1 c3", "Majority",
			"version jumps from 3 to 5: write version 4, or the list of version 4 as previous",
		},
		{"a jump with the list before", "3 a1 b2", "5 a1 c3 after 4 a1 b9", "Majority", "save 5 a1 c3 after 4 a1 b9 floor 99"},

		{
			"an old file", "5 a1 b2 after 4 a1 floor 7", "3 a1 c3", "Majority",
			"5 a1 b2 after 4 a1 floor 7 (version 3 is older than 5, which this agent has adopted: " +
				"it stays with version 5; write that one, or version 6 if the members change)",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mode, err := office.ParseMode(tc.mode)
			if err != nil {
				t.Fatal(err)
			}
			kept := list(tc.kept)
			choice, err := state.ChooseList(kept, *list(tc.wanted), mode, 99)
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				if choice.Save {
					got = "save "
				}
				got += written(choice.List)
				if choice.Warning != "" {
					got += " (" + choice.Warning + ")"
				}
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if kept != nil && written(*kept) != tc.kept {
				t.Errorf("what was kept has become %s", written(*kept))
			}
			if err == nil && choice.Warning == "" {
				// After a restart, the same file leads to the same list.
				again, err := state.ChooseList(&choice.List, *list(tc.wanted), mode, 100)
				if err != nil || again.Save || written(again.List) != written(choice.List) {
					t.Errorf("after a restart: %+v, %v", again, err)
				}
			}
		})
	}
}
