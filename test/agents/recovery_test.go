package agents

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

var rewrite = flag.Bool("rewrite", false, "replace the transcripts in docs/algorithms/recovery.md")

const recoveryPage = "../../docs/algorithms/recovery.md"

// A heartbeat is much longer than a recovery, so that the recovery ends before the
// coordinator's next BEAT.
// All timeouts are so long that no message is late on a busy machine.
var recoveryTiming = agentcluster.Timing{
	HeartbeatMillis: 1000, SuspicionTimeoutMillis: new(int32(3000)), DrainMillis: new(int32(5000)),
}

const (
	recoveryLeaseMillis = 4000
	// recoveryAttempts is how often the process is restarted at most, until no BEAT comes first.
	recoveryAttempts = 5
)

// restart is a transcript on the page: one of four agents is killed and restarted.
type restart struct {
	title, algorithm, policy string
	process, coordinator     string
	// counts are those of the source texts.
	counts map[string]int
	// learns: the answer names the coordinator. Otherwise the process waits for its BEAT.
	learns bool
	// takesOver: the coordinator hands the office over to the process.
	takesOver bool
}

var restarts = []restart{{
	title: "Bully, a lower process", algorithm: "Bully", policy: "Never", process: "c", coordinator: "d",
	counts: map[string]int{"ELECTION": 1, "OK": 1, "COORDINATOR": 3},
}, {
	title: "Bully, the highest process", algorithm: "Bully", policy: "Never", process: "d", coordinator: "c",
	counts: map[string]int{"COORDINATOR": 3},
}, {
	title: "StatusTable, the lowest process", algorithm: "StatusTable", policy: "Never", process: "a", coordinator: "d",
	counts: map[string]int{"REQUEST": 1, "TABLE": 1, "UPDATE": 3}, learns: true,
}, {
	title: "StatusTable, the highest process takes over", algorithm: "StatusTable", policy: "Always",
	process: "d", coordinator: "c",
	counts: map[string]int{"REQUEST": 1, "TABLE": 1, "UPDATE": 3}, learns: true, takesOver: true,
}, {
	title: "RingActiveList, the lowest process", algorithm: "RingActiveList", policy: "Never",
	process: "a", coordinator: "d",
	counts: map[string]int{"INQUIRY": 3, "REPLY": 1}, learns: true,
}}

// TestRestartedAgentRecovers kills an agent and restarts it. The agent runs the recovery
// of its algorithm, with the messages that the source texts count. It knows the
// coordinator before the next heartbeat, and takes over only by a hand-over.
func TestRestartedAgentRecovers(t *testing.T) {
	need.Complete(t)
	page := &pageText{string(must.ReadFile(t, filepath.FromSlash(recoveryPage)))}
	for _, r := range restarts {
		t.Run(r.title, func(t *testing.T) {
			lines := r.run(t)
			if got := countKinds(lines); !maps.Equal(got, r.counts) {
				t.Errorf("got messages %v, want %v:\n%s", got, r.counts, lines)
			}
			if *rewrite {
				from, to := page.find(t, r.title)
				page.text = page.text[:from] + lines + page.text[to:]
			}
			if got := countKinds(page.transcript(t, r.title)); !maps.Equal(got, r.counts) {
				t.Errorf("%s: got messages %v in the transcript, want %v: run the test with -rewrite", recoveryPage, got, r.counts)
			}
		})
	}
	if *rewrite {
		must.Succeed(t, os.WriteFile(filepath.FromSlash(recoveryPage), []byte(page.text), 0o644)) //nolint:gosec // a page
	}
}

// run restarts the process, and returns what all agents did from then on.
func (r *restart) run(t *testing.T) string {
	t.Helper()
	g := newGroup(t, agentcluster.Options{Agents: 4, TLS: true, Group: agentcluster.Group{
		Algorithm: r.algorithm, Safety: agentcluster.Safety{Mode: "Majority", LeaseMillis: recoveryLeaseMillis},
		Preemption: agentcluster.Preemption{Policy: r.policy}, Timing: recoveryTiming,
	}})
	g.start()
	g.coordinate("d")
	for range recoveryAttempts {
		g.kill(r.process)
		must.Equalf(t, g.awaitCoordinator(), r.coordinator, "coordinator")
		term, began := g.leader(r.coordinator).Term, time.Now()
		g.start(r.process)
		lines := g.awaitSteps(began, r.process+" follows "+r.coordinator)
		if len(countKinds(lines)) > 0 {
			return r.checkOutcome(t, g, began, term)
		}
		t.Logf("a BEAT of the coordinator came before the recovery:\n%s", lines)
	}
	t.Fatalf("in %d attempts a BEAT of the coordinator came before the recovery", recoveryAttempts)
	return ""
}

// checkOutcome checks who is coordinator in the end, and by which means.
func (r *restart) checkOutcome(t *testing.T, g *testGroup, began time.Time, term uint64) (lines string) {
	t.Helper()
	last := r.coordinator
	if r.takesOver {
		last = r.process
		g.awaitSteps(began, r.coordinator+" resigns in favor of "+last, last+" becomes coordinator")
	}
	must.Equalf(t, g.awaitCoordinator(), last, "coordinator")
	if after := g.leader(last); !r.takesOver && after.Term != term {
		t.Errorf("got term %d after term %d, want an undisturbed tenure", after.Term, term)
	}
	for _, row := range g.status(r.process).Processes {
		want := "Normal"
		if row.Name == last {
			want = "Coordinator"
		}
		expect.Equalf(t, row.Status, want, "in the row of %s", row.Name)
	}
	lines = g.awaitSteps(began)
	g.checkTraces()
	return lines
}

// eventTexts describe events by an agent and a peer.
var eventTexts = map[string]string{
	"learned": "%s learns that %s is coordinator", "recognised": "%s follows %s",
	"stop":    "%s asks its application to stop, in favor of %s",
	"resigns": "%s resigns in favor of %s", "tenure": "%s becomes coordinator%.0s",
}

// awaitSteps waits until the journals of all agents have these lines since a moment, and returns all of them: the
// messages of elections that were sent, and the events. The agents run on one machine, so their clocks are the same.
func (g *testGroup) awaitSteps(since time.Time, want ...string) (lines string) {
	g.t.Helper()
	g.await(func(ctx context.Context) error {
		journals, err := g.readJournals(ctx)
		if err != nil {
			return err
		}
		lines = describeSteps(journals, since)
		for _, line := range want {
			if !strings.Contains("\n"+lines, "\n"+line+"\n") {
				return fmt.Errorf("got no line %q in:\n%s", line, lines)
			}
		}
		return nil
	})
	return lines
}

func describeSteps(journals []journal.Journal, since time.Time) string {
	type line struct {
		at   time.Time
		text string
	}
	var lines []line
	for _, j := range journals {
		for _, s := range j.Steps {
			if s.At.Before(since) {
				continue
			}
			for _, e := range s.Events {
				if format := eventTexts[e.Kind]; format != "" {
					lines = append(lines, line{s.At, fmt.Sprintf(format, j.Agent, e.Peer)})
				}
			}
			for _, m := range s.Sent {
				if countsAsElection(m.Kind) && m.From != m.To {
					lines = append(lines, line{s.At, describeMessage(&m)})
				}
			}
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	var text strings.Builder
	for _, l := range lines {
		fmt.Fprintln(&text, l.text)
	}
	return text.String()
}

func describeMessage(m *journal.Message) string {
	line := fmt.Sprintf("%s -> %s %s", m.From, m.To, m.Kind)
	if m.Subject != "" && m.Kind != election.Coordinator.String() {
		line += " about " + m.Subject
	}
	if m.Origin != "" {
		line += " from " + m.Origin
	}
	if len(m.List) > 0 {
		line += fmt.Sprint(" ", m.List)
	}
	return line
}

// pageText is the page with the transcripts. Each is a code block below a line with its title.
type pageText struct{ text string }

func (p *pageText) find(t *testing.T, title string) (from, to int) {
	t.Helper()
	block := regexp.MustCompile("(?s)\n### " + regexp.QuoteMeta(title) + "\n.*?\n```text\n(.*?)```\n").
		FindStringSubmatchIndex(p.text)
	if block == nil {
		t.Fatalf("%s has no transcript under the heading %q", recoveryPage, title)
	}
	return block[2], block[3]
}

func (p *pageText) transcript(t *testing.T, title string) string {
	t.Helper()
	from, to := p.find(t, title)
	return p.text[from:to]
}

// countKinds counts the messages in a transcript by their kind.
func countKinds(transcript string) map[string]int {
	counts := map[string]int{}
	for line := range strings.Lines(transcript) {
		if words := strings.Fields(line); slices.Contains(words, "->") {
			counts[words[3]]++
		}
	}
	return counts
}
