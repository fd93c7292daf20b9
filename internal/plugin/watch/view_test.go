package watch

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestViewIsCroppedToTheTerminal(t *testing.T) {
	var lines []string
	for i := range 30 {
		lines = append(lines, fmt.Sprint(i, strings.Repeat("ä", 100)))
	}
	got := crop(lines, 20, 10)
	must.Equalf(t, len(got), 10, "lines")
	if !strings.HasPrefix(got[0], "0ä") || !strings.HasPrefix(got[9], "29ä") {
		t.Errorf("got first line %q and last line %q, want the first and the last one of all", got[0], got[9])
	}
	for _, line := range got {
		expect.Lenf(t, []rune(line), 20, "%q: letters", line)
	}
	if got := crop(lines[:3], 200, 10); len(got) != 3 || got[2] != lines[2] {
		t.Errorf("got %q, want the lines unchanged", got)
	}
}

// TestMembersStay: on a small terminal, old tenures are left out first, and then old changes.
func TestMembersStay(t *testing.T) {
	g := &v1.ElectionGroup{Status: v1.ElectionGroupStatus{ObservedGeneration: 1}}
	for i := range 5 {
		g.Status.Processes = append(g.Status.Processes, v1.Process{Pod: fmt.Sprint("ledger-", i), Status: v1.ProcessNormal})
	}
	for i := range 10 {
		g.Status.History = append(g.Status.History, v1.Tenure{Number: int64(10 - i), Pod: fmt.Sprint("tenure-", 10-i)})
	}
	v := view{group: g, latest: []string{"change-1", "change-2", "change-3"}}
	for _, test := range []struct {
		height      int
		first, last string // the first and the last of the tenures and changes that are shown
		count       int
	}{
		{40, "tenure-10", "change-3", 13}, {24, "tenure-10", "change-3", 10}, {19, "tenure-10", "change-3", 5}, {16, "change-1", "change-3", 3}, {14, "change-2", "change-3", 2},
	} {
		text := strings.Join(crop(v.render(time.Now(), 80, test.height, "a note"), 80, test.height), "\n")
		shown := regexp.MustCompile(`(tenure|change)-\d+`).FindAllString(text, -1)
		if members := strings.Count(text, "ledger-"); members != 5 || len(shown) != test.count || shown[0] != test.first || shown[len(shown)-1] != test.last ||
			strings.Contains(text, "TENURE") != strings.HasPrefix(test.first, "tenure") {
			t.Errorf("%d lines: got %d members, and %q in\n%s", test.height, members, shown, text)
		}
	}
}

// Advice can be read to its end. Tables stay tables.
func TestSentencesAreWrapped(t *testing.T) {
	advice := "  The other members continue. See why ä member is down: kubectl describe pod ledger-4"
	row := "ledger-4  50        Crashed      3m12s  PodMissing: There is no pod with this name"
	want := "  The other members continue. See|  why ä member is down: kubectl|  describe pod ledger-4|ledger-4  50        Crashed      3m1|12:00:01.000  the group was created,|again|" + strings.Repeat("x", 36)
	lines := []string{advice, row, "12:00:01.000  the group was created, again", strings.Repeat("x", 40)}
	expect.Equal(t, strings.Join(crop(wrap(lines, 36), 36, 10), "|"), want)
}

func TestViewShowsNoControlCharacters(t *testing.T) {
	g := &v1.ElectionGroup{Status: v1.ElectionGroupStatus{Conditions: []metav1.Condition{{
		Type: string(v1.ConditionReady), Status: metav1.ConditionFalse, Reason: "PodMissing", Message: "\x1b[2J\x1b[Hcoordinator\rledger-0\u009b1m\x7f\a",
	}}}}
	var v view
	v.set(g, time.Now())
	got := strings.Join(crop(v.render(time.Now(), 200, 50), 200, 50), "\n")
	if strings.ContainsAny(got, "\x1b\r\u009b\x7f\x07") || !strings.Contains(got, "^[[2J^[[Hcoordinator") {
		t.Errorf("got %q, want no control characters", got)
	}
}
