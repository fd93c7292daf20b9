package controllers_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// An agent that says something new a thousand times a second doesn't have the
// operator write all the time, and all that happens in other groups is shown.
func TestRestlessAgentDoesNotTakeTheOperatorsTime(t *testing.T) {
	s := newStage(t)
	a := s.operator(func(a *actor) { a.lull = -1 })
	s.settled(a)
	others := []string{"one", "two", "three", "four"}
	pods := []string{"p-0", "p-1", "p-2"}
	for _, pod := range pods {
		s.pod(pod, others...)
	}
	for _, group := range others {
		s.declared(group, brief, pods...)
		s.awaitAdopted(group, 1, pods...)
	}
	s.awaitQuiet(a)

	stop, stopped := make(chan struct{}), make(chan struct{})
	liar := s.agents["ledger-0"]
	go func() {
		defer close(stopped)
		for {
			liar.ChangeReport("ledger", func(r *control.Report) {
				r.Term++
				r.Coordinator = []string{"ledger-0", "ledger-1"}[r.Term%2]
			})
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	before := 0
	count := func(group string) int {
		return len(slices.DeleteFunc(a.written()[before:], func(write string) bool {
			return !strings.HasSuffix(write, "/electiongroups/"+group+"/status")
		}))
	}
	// By then it has been believed as often as an agent is that was quiet.
	at := count("ledger") + 10
	s.await("it is shown a few times", func() bool {
		said, _ := liar.Report("ledger")
		return count("ledger") >= at && said.Term > 500
	})
	began := time.Now()
	before = len(a.written())
	for term := range int64(10) {
		for i, group := range others {
			s.elect(group, pods[(int(term)+i)%3], uint64(term+7))
			s.awaitCoordinator(group, pods[(int(term)+i)%3], term+7)
			s.awaitRole(pods[(int(term)+i)%3], group, v1.RoleCoordinator)
		}
	}
	most := 5 + int(5*time.Since(began).Seconds())
	if writes := count("ledger"); writes > most {
		t.Errorf("the status was written %d times for one agent's sake, and should be %d times at most", writes, most)
	}
	close(stop)
	<-stopped
	s.awaitQuiet(a)
	for _, group := range others {
		if writes := count(group); writes > 20 {
			t.Errorf("%s was written %d times for ten elections", group, writes)
		}
	}
}
