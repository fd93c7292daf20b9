package e2e

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// testWithoutOperator: who leads doesn't depend on it.
func testWithoutOperator(s ledger) {
	scale := func(to int) {
		s.kubectl("scale", "deployment/conclave-manager", "--namespace", operatorsSpace, "--replicas="+strconv.Itoa(to))
	}
	before := s.group("ledger").Status.Term
	scale(0)
	s.kubectl("wait", "pod", "--namespace", operatorsSpace, "-l", "app.kubernetes.io/name=conclave", "--for=delete", "--timeout", "1m",
		"--request-timeout", "0")
	s.bear()
	if after := s.group("ledger").Status.Term; after != before {
		s.t.Errorf("there is no operator, and the status went from term %d to %d", before, after)
	}
	scale(2)
	s.catchUp(before)
}

// testWithoutServer: neither does it depend on the API server, without which the leader of the operator ends itself.
func testWithoutServer(s ledger) {
	before, lease := s.group("ledger").Status.Term, s.lease()
	s.own("kill", "control-plane")
	s.bear()
	if said, err := s.try("get", "--raw", "/readyz"); err == nil {
		s.t.Fatalf("the API server wasn't away: %s", said)
	}
	s.own("start", "control-plane")
	s.catchUp(before)
	s.eventually(soon, "the operator leads again by its Lease, and all of it is ready", func() bool {
		return s.lease().LeaseTransitions > lease.LeaseTransitions && s.kubectl("get", "deployment", "conclave-manager",
			"--namespace", operatorsSpace, "-o", "jsonpath={.status.readyReplicas}") == "2"
	})
	s.t.Logf("%s led the operator, and %s leads it; restarts: %s", lease.HolderIdentity, s.lease().HolderIdentity, s.kubectl("get", "pods",
		"--namespace", operatorsSpace, "-o", "jsonpath={range .items[*]}{.metadata.name}={.status.containerStatuses[*].restartCount} {end}"))
}

// bear goes through an outage. In the middle of it the coordinator's agent is killed; besides, nobody loses the lead.
func (l ledger) bear() {
	l.t.Helper()
	begun := time.Now()
	l.await(begun, highest, pods...)
	time.Sleep(*away / 2) // This long it lasts.
	killed := time.Now()
	l.kill(highest)
	l.await(killed, pods[3], besides(highest)...)
	l.await(killed, highest, pods...)
	time.Sleep(time.Until(begun.Add(*away)))
	if led := tenures(l.since(begun)); len(led) != 3 {
		l.t.Errorf("in an outage of %s, in which the coordinator was killed once, there led:\n%s", *away, strings.Join(led, "\n"))
	}
}

// catchUp waits until the status knows what the agents have agreed on since.
func (l ledger) catchUp(before int64) {
	l.t.Helper()
	l.eventually(soon, "the status is in the term of the agents", func() bool {
		g, said := l.group("ledger"), l.now()[highest]
		return len(said) == 1 && said[0].Leading && g.coordinator() == highest && g.Status.Coordinator.Term == int64(said[0].Term) //nolint:gosec // a term of a test
	})
	l.leads(highest)
	l.complete()
	if after := l.group("ledger").Status.Term; after <= before {
		l.t.Errorf("the term was %d and is %d", before, after)
	}
}

// lease says which replica of the operator sees to the groups.
type lease struct {
	HolderIdentity   string
	LeaseTransitions int
}

func (l ledger) lease() lease {
	l.t.Helper()
	var found struct{ Spec lease }
	said := l.kubectl("get", "lease", "conclave-manager", "--namespace", operatorsSpace, "-o", "json")
	if err := json.Unmarshal([]byte(said), &found); err != nil {
		l.t.Fatal(err)
	}
	return found.Spec
}
