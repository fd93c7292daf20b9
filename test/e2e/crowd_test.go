package e2e

import (
	"fmt"
	"strings"
	"time"
)

// testCrowd scales a Deployment up, away, and back: whoever leads does so alone, and its lists of members follow each other.
func testCrowd(s ledger) {
	tellers := observe(s.t, s.name, "teller", 100*time.Millisecond)
	version := s.group("teller").Status.MemberList.Version
	begun := version
	scaled := func(to int) func() bool {
		s.kubectl("scale", "deployment/teller", "--namespace", samples, fmt.Sprintf("--replicas=%d", to))
		return func() bool {
			g := s.group("teller")
			leading := strings.Count(g.rows(), " Coordinator")
			if leading > 1 {
				s.t.Errorf("the table has %d coordinators: %s", leading, g.rows())
			}
			list := g.Status.MemberList
			if list == nil || list.Version < version {
				s.t.Fatalf("the list was in version %d, and is %+v", version, list)
			}
			version = list.Version
			if to == 0 {
				return g.coordinator() == "" && strings.Count(g.rows(), " Normal") == 0
			}
			return leading == 1 && strings.Count(g.rows(), " Normal") == to-1 && len(g.Status.Processes) == to && list.State == "Settled"
		}
	}
	limit := soon + time.Duration(*crowd)*10*time.Second // Their nodes are this machine.
	s.eventually(limit, fmt.Sprintf("%d tellers have one coordinator, and all follow it", *crowd), scaled(*crowd))
	s.t.Logf("that took %d versions of the list, from %d to %d", version-begun, begun, version)
	s.eventually(limit, "no teller leads", scaled(0))
	s.kubectl("wait", "pod", "--namespace", samples, "-l", "app=teller", "--for=delete", "--timeout", limit.String(), "--request-timeout", "0")
	s.eventually(limit, "three new tellers have one coordinator, and follow it", scaled(3))
	s.t.Logf("the list is in version %d", version)
	led := tellers.since(time.Time{})
	s.t.Logf("tenures:\n%s", strings.Join(tenures(led), "\n"))
	if found := contradiction(led); found != "" {
		s.t.Error(found)
	}
	if found := brokenPromise(led); found != "" {
		s.t.Error(found)
	}
}
