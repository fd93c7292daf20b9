package agents

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// agentLog reads what the agents log: the messages of elections that they send, and
// changes of the coordinator.
type agentLog struct {
	paths map[string]string
	// skip is the size of each file when the part of interest began.
	skip map[string]int
	// entries are in the order of time. The agents run on one machine, so their clocks
	// are the same.
	entries []entry
}

// entry is a line of a log: the message of a kind that an agent sent to a peer, or an
// event.
type entry struct {
	time, agent, event, kind, peer, about, from, list string
}

// eventTexts describe events by an agent and a peer.
var eventTexts = map[string]string{
	"learned": "%s learns that %s is coordinator", "recognised": "%s follows %s", "stop": "%s asks its application to stop, in favor of %s",
	"resigns": "%s resigns in favor of %s", "tenure": "%s becomes coordinator%.0s",
}

// newAgentLog makes the agents of a cluster write verbose logs from their start on.
func newAgentLog(t *testing.T, agents *agentcluster.Cluster) *agentLog {
	t.Helper()
	l := &agentLog{paths: map[string]string{}, skip: map[string]int{}}
	folder := t.TempDir()
	for _, name := range agents.Names() {
		l.paths[name] = filepath.Join(folder, name+".log")
		file, err := os.OpenFile(l.paths[name], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		must.Succeed(t, err)
		t.Cleanup(func() { _ = file.Close() })
		agents.Agent(name).Stderr, agents.Agent(name).Verbose = file, true
	}
	return l
}

// begin skips what has been logged so far.
func (l *agentLog) begin(t *testing.T) {
	t.Helper()
	for name, path := range l.paths {
		text, err := os.ReadFile(path)
		must.Succeed(t, err)
		l.skip[name] = len(text)
	}
}

var (
	logLine  = regexp.MustCompile(`^time=(\S+) level=\S+ msg=("[^"]*"|\S+)`)
	logValue = regexp.MustCompile(` (\w+)=("[^"]*"|\S+)`)
)

// read reads the logs again.
func (l *agentLog) read() error {
	l.entries = nil
	for name, path := range l.paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text[l.skip[name]:])) {
			if e, ok := parseEntry(name, line); ok {
				l.entries = append(l.entries, e)
			}
		}
	}
	slices.SortStableFunc(l.entries, func(a, b entry) int { return cmp.Compare(a.time, b.time) })
	return nil
}

func parseEntry(agent, line string) (entry, bool) {
	head := logLine.FindStringSubmatch(line)
	if head == nil {
		return entry{}, false
	}
	values := map[string]string{}
	for _, v := range logValue.FindAllStringSubmatch(line, -1) {
		values[v[1]] = strings.Trim(v[2], `"`)
	}
	e := entry{time: head[1], agent: agent}
	if head[2] == `"sending message"` {
		e.kind, e.peer, e.about, e.from = values["kind"], values["to"], values["about"], values["from"]
		if list := values["list"]; list != "[]" {
			e.list = " " + list
		}
		return e, true
	}
	e.event, e.peer = head[2], values["peer"]
	return e, eventTexts[e.event] != ""
}

// index returns the position of an entry, whatever its time. If there is none, that is
// behind the last one.
func (l *agentLog) index(want entry) int {
	i := slices.IndexFunc(l.entries, func(e entry) bool { e.time = ""; return e == want })
	if i < 0 {
		return len(l.entries)
	}
	return i
}

// await waits for an entry.
func (l *agentLog) await(ctx context.Context, t *testing.T, want entry) {
	t.Helper()
	err := agentcluster.Await(ctx, func(context.Context) error {
		if err := l.read(); err != nil {
			return err
		}
		if l.index(want) == len(l.entries) {
			return fmt.Errorf("got no line %q in:\n%s", want, l.lines())
		}
		return nil
	})
	must.Succeed(t, err)
}

func (l *agentLog) countMessages() map[string]int {
	counts := map[string]int{}
	for _, e := range l.entries {
		if e.kind != "" {
			counts[e.kind]++
		}
	}
	return counts
}

// lines returns the transcript.
func (l *agentLog) lines() string {
	var b strings.Builder
	for _, e := range l.entries {
		fmt.Fprintln(&b, e)
	}
	return b.String()
}
