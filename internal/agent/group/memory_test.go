package group

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/memory"
	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// memories has the memory of each member of a cluster.
type memories struct {
	t *testing.T

	mu    sync.Mutex
	state map[string]string // the state directory of the running process, by member
	// promised are the grants on which others may rely, with the file at that time.
	promised []promise
}

type promise struct {
	member, holder string
	term           election.Term
	file           []byte
}

func owner(member string) memory.Owner { return memory.Owner{Member: member, Group: "ledger"} }

func (m *memories) path(state string) string { return filepath.Join(state, "memory", "ledger.grants") }

// open opens a memory with the content of a file, or an empty one. It returns the state directory.
func (m *memories) open(member string, content []byte) (string, *memory.File, *memory.Record) {
	m.t.Helper()
	state := m.t.TempDir()
	d, without, err := memory.Open(state)
	if without != nil || err != nil {
		m.t.Fatal(without, err)
	}
	folder, err := os.Readlink(filepath.Join(state, "memory"))
	must.Succeed(m.t, err)
	m.t.Cleanup(func() {
		d.Close()
		_ = os.RemoveAll(folder)
	})
	if content != nil {
		must.Succeed(m.t, os.WriteFile(m.path(state), content, 0o600))
	}
	f, remembered, without, err := d.Open(owner(member))
	if without != nil || err != nil {
		m.t.Fatal(without, err)
	}
	return state, f, remembered
}

// remember gives a member the memory that its last process left.
func (m *memories) remember(c *Config) {
	m.t.Helper()
	var left []byte
	if state := m.state[c.Self]; state != "" {
		left = m.file(c.Self)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state[c.Self], c.Memory, c.Remembered = m.open(c.Self, left)
	promised(m.t, c, func(holder string, term election.Term) { m.promise(c.Self, holder, term) })
}

func (m *memories) file(member string) []byte {
	content, err := os.ReadFile(m.path(m.state[member]))
	expect.Succeed(m.t, err)
	return content
}

func (m *memories) promise(member, holder string, term election.Term) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.promised = append(m.promised, promise{member, holder, term, m.file(member)})
}

// promised has call called when a member sends a GRANT, and when its own tenure begins, before its application knows.
func promised(t *testing.T, c *Config, call func(holder string, term election.Term)) {
	t.Helper()
	to, ok := c.Transport.(link)
	if !ok {
		t.Errorf("got transport %T, want a link", c.Transport)
	}
	c.Transport = promisingLink{to, call}
	c.Log = slog.New(logHandler(func(r slog.Record) {
		if r.Message == election.TenureStarted.String() {
			r.Attrs(func(a slog.Attr) bool {
				if a.Key == "term" {
					call(c.Self, election.Term(a.Value.Uint64()))
				}
				return true
			})
		}
	}))
}

type promisingLink struct {
	link
	call func(holder string, term election.Term)
}

func (l promisingLink) Send(to string, out transport.Outgoing) bool {
	if m := messageIn(l.cluster.t, out); m.Kind == election.Grant {
		l.call(to, m.Term)
	}
	return l.link.Send(to, out)
}

// newRememberingCluster starts three members that remember their grants. Each would wait for
// an hour if it had lost its memory, except for its first process.
func newRememberingCluster(t *testing.T, mode office.Mode) (*cluster, *memories, config.Group) {
	t.Helper()
	settings := testSettings()
	settings.Safety = config.Safety{Mode: mode, Lease: time.Hour}
	settings.List.Members = []memberlist.Member{member("a", 10), member("b", 20), member("c", 30)}
	m := &memories{t: t, state: map[string]string{}}
	c := emptyCluster(t)
	c.outFor, c.tune = time.Hour, m.remember
	for i, member := range settings.List.Members {
		c.join(member.Name, uint32(i+1), settings)
	}
	waitFor(t, c.group("a"), "a follows c", func(l Leader) bool { return l.Coordinator == "c" })
	c.outFor = 0
	return c, m, settings
}

// TestGrantIsRememberedBeforeOthersRelyOnIt: whenever a process is killed, its next process
// remembers each grant that it has sent, and each tenure that has begun.
func TestGrantIsRememberedBeforeOthersRelyOnIt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c, m, _ := newRememberingCluster(t, office.Majority)
		testwait.Until(t, "b is ready, and c hands over", func() bool {
			_, err := c.group("c").StepDown(testwait.Context(t), "b")
			return err == nil
		})
		waitFor(t, c.group("a"), "a follows b", func(l Leader) bool { return l.Coordinator == "b" })
		m.mu.Lock()
		promised := m.promised
		m.mu.Unlock()
		own := 0
		for _, p := range promised {
			_, f, got := m.open(p.member, p.file)
			f.Close()
			if got == nil || got.Term != p.term || got.Holder != p.holder {
				t.Errorf("%s promised %s the office in term %d: its next process remembers %+v", p.member, p.holder, p.term, got)
			}
			if p.member == p.holder {
				own++
			}
		}
		if own < 2 || len(promised) < own+2 {
			t.Errorf("got %d tenures and %d grants, want two or more of each", own, len(promised)-own)
		}
	})
}

// TestRestartedMemberGrantsAtOnce: a member restarts, and then the coordinator ends. Its
// successor needs the grant of that member.
func TestRestartedMemberGrantsAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c, _, settings := newRememberingCluster(t, office.Majority)
		killed := c.group("a")
		c.isolate("a")
		c.join("a", 11, settings)
		a := waitFor(t, c.group("a"), "a follows c", func(l Leader) bool { return l.Coordinator == "c" })
		c.isolate("c")
		for _, survivor := range []string{"a", "b"} {
			c.group(survivor).PeerEnded("c", 3)
		}
		expect.AtLeastf(t, waitFor(t, c.group("b"), "b leads", isLeading).Term, a.Term+1,
			"term after term %d", a.Term)
		killed.Leave(t.Context(), control.EndStopped)
	})
}
