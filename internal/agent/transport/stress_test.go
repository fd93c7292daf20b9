package transport_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestConnectionsRecoverFromRandomFaults: peers are removed, added and change their
// addresses, while connections break and messages are sent. No process ends.
func TestConnectionsRecoverFromRandomFaults(t *testing.T) {
	h := newHarness(t)
	before := runtime.NumGoroutine()
	const members = 4
	all := map[string]*member{}
	addresses, fronts := map[string]string{}, map[string]*relay{}
	for i := range members {
		m := h.start(string(rune('a'+i)), "127.0.0.1:0", uint32(i+1))
		all[m.Self] = m
		addresses[m.Self] = m.address
		fronts[m.Self] = newRelay(t, m.address)
	}
	var sent, returned, refused atomic.Int64
	var acting sync.WaitGroup
	for _, m := range all {
		for seed := range 3 {
			acting.Go(func() {
				random := rand.New(rand.NewPCG(uint64(m.Life), uint64(seed)))
				for range 1000 {
					other := string(rune('a' + random.IntN(members)))
					switch random.IntN(40) {
					case 0: // A peer is removed.
						peers := maps.Clone(addresses)
						delete(peers, other)
						m.SetPeers(peers)
					case 1: // The address of a peer changes.
						peers := maps.Clone(addresses)
						peers[other] = fronts[other].Addr().String()
						m.SetPeers(peers)
					case 2:
						fronts[other].breakAll()
					case 3:
						m.Connected(other)
						m.RoundTrip(other)
					default:
						if m.Send(other, transport.Outgoing{Frame: messageFrame(1), OnFailure: func() { returned.Add(1) }}) {
							sent.Add(1)
						} else {
							refused.Add(1)
						}
					}
					runtime.Gosched()
				}
			})
		}
	}
	acting.Wait()
	for _, m := range all {
		m.SetPeers(addresses)
	}
	term := election.Term(100)
	for _, from := range all {
		for _, to := range all {
			if from != to {
				term++
				from.sendUntilReceived(to, term)
			}
		}
	}
	for _, m := range all {
		m.wantNoneEnded()
	}
	for _, m := range all {
		m.Close()
	}
	for _, front := range fronts {
		front.Close()
		front.breakAll()
	}
	testwait.Until(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
	t.Log(fmt.Sprint(sent.Load(), " messages queued, ", returned.Load(), " not sent, ", refused.Load(), " refused"))
}
