package agents

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestRequestLoopsKeepTheCoordinator: 200 connections of a program in the coordinator's pod ask for the same over and over, without a
// pause. The coordinator's agent has one processor for them and for the election.
func TestRequestLoopsKeepTheCoordinator(t *testing.T) {
	const connections, during = 200, 3 * time.Second
	for path, most := range map[string]int64{
		"leader":  500*3 + 50 + connections,
		"journal": 50*3 + 10 + connections*3, // Refusals follow after a second.
	} {
		t.Run(path, func(t *testing.T) {
			agents := newSteadyGroup(t)
			agents.startConnected()
			const coordinator = "c"
			agents.coordinate(coordinator)
			before := agents.leader(coordinator)
			begin := time.Now()
			n := requestInLoops(agents.ctx, t, "http://"+agents.Agent(coordinator).API+"/v1/groups/ledger/"+path, connections, during)
			// A busy machine may take longer than asked for.
			if most = most * int64(time.Since(begin)) / int64(during); n == 0 || n > most {
				t.Errorf("got %d responses in %s, want at most %d", n, during, most)
			}
			// On a machine that stalls, the lease may end for that reason; the process must lead again.
			agents.awaitCoordinator()
			after := agents.leader(coordinator)
			longest := int64(0)
			for _, p := range agents.status(coordinator).Processes {
				if p.Answers != nil {
					longest = max(longest, p.Answers.LongestMicros)
				}
			}
			t.Logf("%d responses, term %d and then %d, longest answer of a member %d µs", n, before.Term, after.Term, longest)
			if before.Term != after.Term {
				t.Errorf("got term %d after term %d, want the same", after.Term, before.Term)
			}
		})
	}
}

// requestInLoops sends requests on a number of connections, each as soon as it has the response to the one before. It returns the number
// of responses.
func requestInLoops(ctx context.Context, t *testing.T, url string, connections int, during time.Duration) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, during)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}}
	defer client.CloseIdleConnections()
	var responses atomic.Int64
	var loops sync.WaitGroup
	for range connections {
		loops.Go(func() {
			for ctx.Err() == nil {
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
				if err != nil {
					t.Error(err)
					return
				}
				response, err := client.Do(request)
				if err != nil {
					continue // The time is over, or the agent has closed the connection.
				}
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
				responses.Add(1)
			}
		})
	}
	loops.Wait()
	return responses.Load()
}
