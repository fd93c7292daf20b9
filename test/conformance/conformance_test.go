package conformance

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(driverVariable); kind != "" {
		runDriver(kind)
		return
	}
	agentcluster.Main(m)
}

const (
	lease = 3 * time.Second
	drain = 4 * time.Second
)

// kinds are the settings of groups. Each language has a group of each kind.
var kinds = map[string]agentcluster.Group{
	"majority":  {Safety: agentcluster.Safety{Mode: "Majority", LeaseMillis: int32(lease.Milliseconds())}},
	"strict":    {Safety: agentcluster.Safety{Mode: "Strict", LeaseMillis: int32(lease.Milliseconds())}},
	"available": {Safety: agentcluster.Safety{Mode: "Available"}},
}

func groupOf(language, kind string) agentcluster.Group {
	group := kinds[kind]
	group.Name = language + "-" + kind
	group.Preemption = agentcluster.Preemption{Policy: "Never", StableMillis: new(int32)}
	group.Application = agentcluster.Application{Session: "Required"}
	// A long timeout, so that no agent is suspected while the machine is busy.
	group.Timing = agentcluster.Timing{SuspicionTimeoutMillis: new(int32(lease.Milliseconds())), DrainMillis: new(
		int32(drain.Milliseconds()))}
	return group
}

// scenario is what all clients do alike.
type scenario struct {
	name string
	// kind is that of the group, by default majority.
	kind string
	// only are the languages that it is for, by default all.
	only []string
	// asyncio: it includes Python with asyncio, which differs in how the function runs and ends.
	asyncio bool
	// short: it is part of short runs.
	short bool
	// overlap: another process may lead before the function has returned, since what would have ended it is killed or
	// stopped.
	overlap, exitLate bool
	// A scenario has one of these: steps of each lane, the same after leadThenWait, or anything.
	steps, after func(l *lane) error
	run          func(s *scene)
}

var (
	libraries = []string{languageGo, languagePython, languageAsyncio, languageTS}
	// newer are the clients that exit the process, and report the health of the agent.
	newer = []string{languagePython, languageAsyncio, languageTS}
)

// TestClientsBehaveAlike runs each scenario for all languages at the same time, beside the same three agents.
func TestClientsBehaveAlike(t *testing.T) {
	found := languages(t)
	var groups []agentcluster.Group
	for _, language := range found {
		for kind := range kinds {
			groups = append(groups, groupOf(language, kind))
		}
	}
	cluster := agentcluster.Start(t, agentcluster.Options{Agents: 3, TLS: true, Group: groups[0], Further: groups[1:]})
	must.Succeed(t, cluster.Start())
	must.Succeed(t, cluster.AwaitConnected(testwait.Context(t)))
	for _, c := range slices.Concat(scenarios, proxyScenarios) {
		if testing.Short() && !c.short {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			s := &scene{t: t, Cluster: cluster}
			for _, language := range found {
				if c.only != nil && !slices.Contains(c.only, language) || language == languageAsyncio && !c.asyncio {
					continue
				}
				kind := c.kind
				if kind == "" {
					kind = "majority"
				}
				l := newLane(t, cluster, language, groupOf(language, kind).Name)
				l.overlap, l.exitLate = c.overlap, c.exitLate
				s.lanes = append(s.lanes, l)
			}
			switch {
			case c.steps != nil:
				s.each(c.steps)
			case c.after != nil:
				s.each(leadThenWait)
				s.each(c.after)
			default:
				c.run(s)
			}
			s.each(func(l *lane) error { // nothing that came after the last wait
				l.mu.Lock()
				defer l.mu.Unlock()
				return l.broken
			})
		})
	}
	t.Run("all further scenarios", func(t *testing.T) { need.Complete(t) })
}
