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

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

var rewrite = flag.Bool("rewrite", false, "replace the transcripts in docs/algorithms/recovery.md")

const recoveryPage = "../../docs/algorithms/recovery.md"

// A heartbeat is much longer than a recovery, so that the recovery ends before the
// coordinator's next BEAT.
// All timeouts are so long that no message is late on a busy machine.
var recoveryTiming = agentcluster.Timing{HeartbeatMillis: 1000, PatienceMillis: 3000, DrainMillis: 5000}

const (
	recoveryLeaseMillis = 4000
	// recoveryAttempts is how often the process is restarted at most, until no BEAT
	// comes first.
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

var restarts = []restart{
	{
		title: "Bully, a lower process", algorithm: "Bully", policy: "Never", process: "c", coordinator: "d",
		counts: map[string]int{"ELECTION": 1, "OK": 1, "COORDINATOR": 3},
	},
	{
		title: "Bully, the highest process", algorithm: "Bully", policy: "Never", process: "d", coordinator: "c",
		counts: map[string]int{"COORDINATOR": 3},
	},
	{
		title: "StatusTable, the lowest process", algorithm: "StatusTable", policy: "Never", process: "a", coordinator: "d",
		counts: map[string]int{"REQUEST": 1, "TABLE": 1, "UPDATE": 3}, learns: true,
	},
	{
		title: "StatusTable, the highest process takes over", algorithm: "StatusTable", policy: "Always", process: "d", coordinator: "c",
		counts: map[string]int{"REQUEST": 1, "TABLE": 1, "UPDATE": 3}, learns: true, takesOver: true,
	},
	{
		title: "RingActiveList, the lowest process", algorithm: "RingActiveList", policy: "Never", process: "a", coordinator: "d",
		counts: map[string]int{"INQUIRY": 3, "REPLY": 1}, learns: true,
	},
}

// TestRestartedAgentRecovers kills an agent and restarts it. The agent runs the recovery
// of its algorithm, with the messages that the source texts count. It knows the
// coordinator before the next heartbeat, and takes over only by a hand-over.
func TestRestartedAgentRecovers(t *testing.T) {
	need.Complete(t)
	page := readPage(t)
	for _, r := range restarts {
		t.Run(r.title, func(t *testing.T) {
			log := r.run(t)
			if got := log.countMessages(); !maps.Equal(got, r.counts) {
				t.Errorf("got messages %v, want %v:\n%s", got, r.counts, log.lines())
			}
			if *rewrite {
				page.replace(t, r.title, log.lines())
			}
			if got := countKinds(page.transcript(t, r.title)); !maps.Equal(got, r.counts) {
				t.Errorf("%s: got messages %v in the transcript, want %v: run the test with -rewrite", recoveryPage, got, r.counts)
			}
		})
	}
	if *rewrite {
		page.write(t)
	}
}

// run restarts the process, and returns the log of all agents from then on.
func (r *restart) run(t *testing.T) *agentLog {
	t.Helper()
	ctx := testContext(t)
	agents := agentcluster.Start(t, agentcluster.Options{Agents: 4, TLS: true, Trace: true, Group: agentcluster.Group{
		Algorithm: r.algorithm, Safety: &agentcluster.Safety{Mode: "Majority", LeaseMillis: recoveryLeaseMillis},
		Preemption: &agentcluster.Preemption{Policy: r.policy}, Timing: &recoveryTiming,
	}})
	log := newAgentLog(t, agents)
	must.Succeed(t, agents.Start())
	coordinator, err := agents.AwaitCoordinator(ctx)
	if err == nil && coordinator != "d" { // It was the last to start.
		_, err = agents.StepDown(ctx, coordinator, "d")
	}
	must.Succeed(t, err)
	for range recoveryAttempts {
		term := r.restart(ctx, t, agents, log)
		if len(log.countMessages()) == 0 {
			continue // an election reached the process before it recovered
		}
		r.checkOutcome(ctx, t, agents, log, term)
		return log
	}
	t.Fatalf("in %d attempts a BEAT of the coordinator came before the recovery:\n%s", recoveryAttempts, log.lines())
	return nil
}

// event is an event of the process that concerns the coordinator.
func (r *restart) event(kind string) entry {
	return entry{agent: r.process, event: kind, peer: r.coordinator}
}

// restart kills the process and starts it again. It returns when the process follows the
// coordinator, with the coordinator's term before the start.
func (r *restart) restart(ctx context.Context, t *testing.T, agents *agentcluster.Cluster, log *agentLog) uint64 {
	t.Helper()
	process := agents.Agent(r.process)
	if _, err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, process.AwaitEnd())
	if coordinator, err := agents.AwaitCoordinator(ctx); err != nil || coordinator != r.coordinator {
		t.Fatalf("got coordinator %q and error %v, want %s", coordinator, err, r.coordinator)
	}
	before, err := agents.Leader(ctx, r.coordinator)
	must.Succeed(t, err)
	log.begin(t)
	must.Succeed(t, agents.Start(r.process))
	log.await(ctx, t, r.event("recognised"))
	return before.Term
}

// checkOutcome checks who is coordinator in the end, and by which means.
func (r *restart) checkOutcome(ctx context.Context, t *testing.T, agents *agentcluster.Cluster, log *agentLog, term uint64) {
	t.Helper()
	last := r.coordinator
	if r.takesOver {
		last = r.process
		log.await(ctx, t, entry{agent: last, event: "tenure", peer: last})
		// The agents log after they send, so the lines of two agents don't tell which was first.
		log.await(ctx, t, entry{agent: r.coordinator, event: "resigns", peer: last})
	}
	if coordinator, err := agents.AwaitCoordinator(ctx); err != nil || coordinator != last {
		t.Fatalf("got coordinator %q and error %v, want %s", coordinator, err, last)
	}
	after, err := agents.Leader(ctx, last)
	if err != nil || !r.takesOver && after.Term != term {
		t.Errorf("got term %d after term %d and error %v, want an undisturbed tenure", after.Term, term, err)
	}
	checkTable(ctx, t, agents, r.process, last)
	must.Succeed(t, log.read())
	for _, name := range agents.Names() {
		if _, err := agents.Agent(name).Kill(); err != nil {
			t.Fatal(err)
		}
		must.Succeed(t, agents.Agent(name).AwaitEnd())
	}
	checkTraces(t, agents)
}

// checkTable checks that the table of an agent is complete.
func checkTable(ctx context.Context, t *testing.T, agents *agentcluster.Cluster, agent, coordinator string) {
	t.Helper()
	status, err := agents.Status(ctx, agent)
	must.Succeed(t, err)
	for _, row := range status.Processes {
		want := "Normal"
		if row.Name == coordinator {
			want = "Coordinator"
		}
		if row.Status != want {
			t.Errorf("got %s in the row of %s, want %s", row.Status, row.Name, want)
		}
	}
}

// pageText is the page with the transcripts. Each is a code block below a line with its
// title.
type pageText struct{ text string }

func readPage(t *testing.T) *pageText {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(recoveryPage))
	must.Succeed(t, err)
	return &pageText{string(text)}
}

func (p *pageText) find(t *testing.T, title string) (from, to int) {
	t.Helper()
	block := regexp.MustCompile("(?s)\n### " + regexp.QuoteMeta(title) + "\n.*?\n```text\n(.*?)```\n").FindStringSubmatchIndex(p.text)
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

func (p *pageText) replace(t *testing.T, title, lines string) {
	t.Helper()
	from, to := p.find(t, title)
	p.text = p.text[:from] + lines + p.text[to:]
}

func (p *pageText) write(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(filepath.FromSlash(recoveryPage), []byte(p.text), 0o644); err != nil { //nolint:gosec // a page of the documentation
		t.Fatal(err)
	}
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

func (e entry) String() string {
	if e.kind != "" {
		line := fmt.Sprintf("%s -> %s %s", e.agent, e.peer, e.kind)
		if e.about != "" && e.kind != "COORDINATOR" {
			line += " about " + e.about
		}
		if e.from != "" {
			line += " from " + e.from
		}
		return line + e.list
	}
	return fmt.Sprintf(eventTexts[e.event], e.agent, e.peer)
}
