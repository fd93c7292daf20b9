package agent

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// startInDirs starts agents a, b, and c, which remember nothing but their state directories.
func startInDirs(t *testing.T, mode office.Mode, change func(*config.Group)) (g config.Group, dirs map[string]string,
	agents map[string]*Agent,
) {
	t.Helper()
	g, listeners := newGroup(t, 3, mode, "StatusTable")
	change(&g)
	dirs, agents = map[string]string{}, map[string]*Agent{}
	for i, m := range g.List.Members {
		dirs[m.Name] = t.TempDir()
		agents[m.Name] = startAgent(t, g, m.Name, uint32(i+1), dirs[m.Name], listeners[m.Name])
	}
	awaitCoordinator(t, agents, "c")
	return g, dirs, agents
}

// reserved returns what the disk of an agent says that it may have granted and claimed.
func reserved(t *testing.T, a *Agent) election.Term {
	t.Helper()
	record, err := a.options.Store.Load("ledger")
	must.Succeed(t, err)
	return record.Reserved
}

// TestReboot: the agents keep their state directories, and nothing else. They wait for the longest lease, and the next
// term is above all terms that a majority of them had reserved, so above all that it may have granted.
func TestReboot(t *testing.T) {
	t.Parallel()
	for _, mode := range []office.Mode{office.Available, office.Majority, office.Strict} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			const lease = 3 * time.Second
			g, dirs, agents := startInDirs(t, mode, func(g *config.Group) { g.Safety.Lease = lease })
			for range 2 {
				// A majority grants the next term, and one member of that may have reserved fewer than the others.
				all := []election.Term{reserved(t, agents["a"]), reserved(t, agents["b"]), reserved(t, agents["c"])}
				slices.Sort(all)
				least := all[1]
				if mode == office.Available { // There, the others need not grant its claim.
					least = reserved(t, agents["c"])
				}
				began := time.Now()
				for i, name := range []string{"c", "b", "a"} {
					agents[name] = restartAgent(t, g, agents[name], uint32(10+i), dirs[name])
				}
				awaitCoordinator(t, agents, "c")
				c, _ := agents["c"].Find("ledger")
				expect.AtLeastf(t, election.Term(c.Leader().Term), least+1, "term of the tenure, above the reservations")
				if elapsed := time.Since(began); elapsed < lease && mode != office.Available {
					t.Errorf("got a coordinator %s after the reboot, want one after the lease of %s", elapsed, lease)
				}
			}
		})
	}
}

// TestRetirement: the only member of a group from an operator gives up its identity when it ends, and says so, if the
// operator has asked for its exclusion. One of two members doesn't.
func TestRetirement(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		size              int
		replaced, retires bool
	}{{1, true, true}, {1, false, false}, {2, true, false}} {
		size, retires := c.size, c.retires
		g, listeners := newGroup(t, size, office.Majority, "StatusTable")
		g.UID = "uid"
		agents, dir := map[string]*Agent{}, t.TempDir()
		var mu sync.Mutex
		var last control.Report
		all := map[string]Options{}
		for i, m := range g.List.Members {
			folder := cmp.Or(map[string]string{"a": dir}[m.Name], t.TempDir())
			all[m.Name] = testOptions(t, uint32(i+1), folder, listeners[m.Name])
			g.List.Members[i].Identity = memberlist.FormatIdentity(uint64(all[m.Name].Store.Identity()))
		}
		for name, options := range all {
			options.OnReport = func(r control.Report) {
				mu.Lock()
				defer mu.Unlock()
				if r.Pod == "a" {
					last = r
				}
			}
			agents[name] = startWith(t, name, options, g)
		}
		awaitCoordinator(t, agents, g.List.Members[size-1].Name)
		store := agents["a"].options.Store
		if c.replaced {
			joined, _ := agents["a"].Find(g.Name)
			if err := joined.Exclude(t.Context()); size == 1 {
				expect.ErrorIsf(t, err, group.ErrNoSuccessor, "exclusion of the only member")
			}
		}
		agents["a"].Close(t.Context())
		want := memberlist.FormatIdentity(uint64(store.Identity()))
		if !retires {
			want = ""
		}
		expect.Equalf(t, last.Retired, want, "identity that the last report gives up, with %d members", size)
		must.Succeed(t, store.Close())
		next, err := state.Open(dir)
		must.Succeed(t, err)
		expect.Equalf(t, next.Identity() != store.Identity(), retires, "another identity, with %d members", size)
		must.Succeed(t, next.Close())
	}
}

// TestUsedTermsAreAProblem: in a file, only a person can begin with new ones. The agent has had many elections.
func TestUsedTermsAreAProblem(t *testing.T) {
	t.Parallel()
	g, listeners := newGroup(t, 1, office.Majority, "StatusTable")
	options := testOptions(t, 1, t.TempDir(), listeners["a"])
	must.Succeed(t, options.Store.Save("ledger", state.Record{List: &g.List}))
	_, err := options.Store.Join(state.KeyOf(&g), time.Second)
	must.Succeed(t, err)
	must.Succeed(t, options.Store.Reserve(state.KeyOf(&g), election.FirstTerm(1)+1<<15, 1, nil))
	a := startWith(t, "a", options, g)
	awaitCoordinator(t, map[string]*Agent{"a": a}, "a")
	own, others := a.Problems()
	expect.Lenf(t, own, 0, "reasons to be unready")
	expect.EqualSlicesf(t, others, []string{"group ledger: more than half of the terms of version 1 are used: " +
		"raise the version of the list in all files"}, "problems")
}

// TestLostDirectoryNeedsNextVersion: an agent with a configuration file returns with an empty state directory. It
// doesn't know what it has granted under the list, so the others ignore it, also after they were restarted. All of them
// say what to do, and when it is done, the agent votes again.
func TestLostDirectoryNeedsNextVersion(t *testing.T) {
	t.Parallel()
	g, dirs, agents := startInDirs(t, office.Majority, func(*config.Group) {})
	testwait.Until(t, "the identity of a is on all disks", func() bool {
		for _, name := range []string{"b", "c"} {
			if r, err := agents[name].options.Store.Load("ledger"); err != nil || r.Peers["a"] == 0 {
				return false
			}
		}
		return true
	})
	agents["a"] = restartAgent(t, g, agents["a"], 11, t.TempDir())
	agents["b"] = restartAgent(t, g, agents["b"], 12, dirs["b"])
	const toDo = "lost its state directory: raise the version of the list in all files"
	testwait.Until(t, "all agents name the problem", func() bool {
		for _, name := range []string{"b", "c"} {
			if own, others := agents[name].Problems(); len(own) > 0 || len(others) != 1 ||
				others[0] != "group ledger: ignoring peer a: it has "+toDo {
				return false
			}
		}
		own, _ := agents["a"].Problems()
		return strings.Contains(strings.Join(own, "\n"), "group ledger: ignored by peer c: this agent has "+toDo)
	})

	for name, a := range agents {
		next := *a.Config()
		next.Groups = []config.Group{g}
		next.Groups[0].List.Version = 2
		if name == "a" { // The others know the list before.
			next.Groups[0].List.Previous = &memberlist.List{Version: 1, Members: g.List.Members}
		}
		must.Succeed(t, a.Reload(t.Context(), &next))
	}
	testwait.Until(t, "all agents are ready without problems", func() bool {
		for _, a := range agents {
			if own, others := a.Problems(); len(own)+len(others) > 0 {
				return false
			}
		}
		return true
	})
	agents["b"].Close(t.Context())
	c, _ := agents["c"].Find("ledger")
	testwait.NoError(t, func() error { // a needs the grants of c, and of itself.
		_, err := c.StepDown(t.Context(), "a")
		return err
	})
	record, err := agents["c"].options.Store.Load("ledger")
	must.Succeed(t, err)
	expect.Equalf(t, record.Peers["a"], agents["a"].options.Store.Identity(), "identity of a on the disk of c")
}
