package state_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// list reads "3 a1#7 b2@moved after 2 a1 gone a": the identity of a ends with 7.
func list(text string) *memberlist.List {
	if text == "" {
		return nil
	}
	l := &memberlist.List{}
	text, departed, _ := strings.Cut(text, " gone ")
	text, previous, _ := strings.Cut(text, " after ")
	words := strings.Fields(text)
	l.Version = uint32(number(words[0]))
	for _, word := range words[1:] {
		m := memberlist.Member{Name: word[:1], Priority: uint32(word[1] - '0'), Address: "at-" + word[:1]}
		if _, identity, ok := strings.Cut(word, "#"); ok {
			m.Identity = memberlist.FormatIdentity(number(identity))
		}
		if _, to, ok := strings.Cut(word, "@"); ok {
			m.Address = to
		}
		l.Members = append(l.Members, m)
	}
	if previous := list(previous); previous != nil {
		l.Previous = previous.Bare()
	}
	l.Departed = strings.Fields(departed)
	return l
}

func number(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		panic(err)
	}
	return n
}

func listText(l memberlist.List) string {
	var b strings.Builder
	fmt.Fprint(&b, l.Version)
	for _, m := range l.Members {
		fmt.Fprintf(&b, " %s%d", m.Name, m.Priority)
		if m.Identity != "" {
			fmt.Fprintf(&b, "#%s", strings.TrimLeft(m.Identity, "0"))
		}
		if m.Address != "at-"+m.Name {
			fmt.Fprintf(&b, "@%s", m.Address)
		}
	}
	if l.Previous != nil {
		fmt.Fprintf(&b, " after %s", listText(memberlist.List{Version: l.Previous.Version, Members: l.Previous.Members}))
	}
	if len(l.Departed) > 0 {
		fmt.Fprintf(&b, " gone %s", strings.Join(l.Departed, " "))
	}
	return b.String()
}

// TestChooseList: a case has the safety mode, whether an operator has published the list, the list that is stored, if
// there is one, and the list of the configuration. With -rewrite, the test replaces the results in its file.
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
		fromOperator := len(d.CmdArgs) > 1
		chosen, warning, err := state.ChooseList(stored, *configured, mode, fromOperator)
		if stored != nil {
			expect.Equalf(t, listText(*stored), texts["stored"], "stored list after the choice")
		}
		if err != nil {
			return err.Error() + "\n"
		}
		if warning != "" {
			return listText(chosen) + " (" + warning + ")\n"
		}
		// After a restart, the same file leads to the same list.
		again, _, err := state.ChooseList(&chosen, *configured, mode, fromOperator)
		must.Succeed(t, err)
		expect.DeepEqualf(t, again, chosen, "list after a restart")
		return listText(chosen) + "\n"
	})
}
