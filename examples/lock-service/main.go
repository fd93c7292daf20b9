// Command lock-service enforces mutual exclusion: the coordinator grants locks to the
// processes. A new coordinator learns from the processes who holds which lock, and waits
// until the locks of silent processes have expired. See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/examples/internal/ledger"
	"github.com/conclave-dev/conclave/examples/internal/workload"
)

const (
	// leaseMax is how long a lock is granted.
	leaseMax = time.Second
	// useMax is how long a holder uses a lock, from before it sent its request. It is
	// shorter, because clocks run at different rates.
	useMax = leaseMax * 7 / 8
)

// atCoordinator returns how long a lock is granted that its holder uses for rest.
func atCoordinator(rest time.Duration) time.Duration { return rest * 8 / 7 }

var locks = []string{"lock/a", "lock/b"}

// grant is a lock in the hands of a process. Token and Number are the right to use it.
type grant struct {
	Lock   string `json:"lock"`
	Holder string `json:"holder"`
	// Token is that of the coordinator, and Number counts its grants.
	Token  uint64 `json:"token"`
	Number uint64 `json:"number"`
	// Millis is how long the lock is held at most, from now.
	Millis int64 `json:"millis"`
}

func main() {
	workload.Main("lock-service", func(p *workload.Process) workload.Program {
		c, h := &coordinator{Process: p}, &holder{Process: p}
		mux := http.NewServeMux()
		mux.HandleFunc("POST /acquire", c.serveAcquire)
		mux.HandleFunc("POST /release", c.serveRelease)
		mux.HandleFunc("POST /held", h.serveHeld)
		return workload.Program{Handler: mux, Work: h.work, Lead: c.lead}
	})
}

// holder is the side of a process that uses locks.
type holder struct {
	*workload.Process

	mu sync.Mutex
	// token is the highest one of a coordinator that has asked what this process holds.
	token uint64
	// held is the lock that this process holds until a time, if any.
	held  *grant
	until time.Time
}

// serveHeld tells a new coordinator which lock this process holds. From then on, this
// process accepts no lock of earlier coordinators: the new one wouldn't know about it.
func (h *holder) serveHeld(w http.ResponseWriter, r *http.Request) {
	var token uint64
	if !workload.Decode(w, r, &token) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if token < h.token {
		http.Error(w, "there is a later coordinator", http.StatusConflict)
		return
	}
	h.token = token
	held := []grant{}
	if rest := time.Until(h.until); h.held != nil && rest > 0 {
		g := *h.held
		g.Millis = atCoordinator(rest).Milliseconds() + 1
		held = append(held, g)
	}
	workload.Respond(w, held)
}

// keep stores a grant, unless a later coordinator doesn't know about it.
func (h *holder) keep(g *grant, until time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g.Token < h.token {
		return false
	}
	h.held, h.until = g, until
	return true
}

func (h *holder) drop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = nil
}

// work acquires and uses one lock after the other.
func (h *holder) work(ctx context.Context) {
	for workload.Pause(ctx, rand.N(10*time.Millisecond)) {
		if err := h.useOne(ctx, locks[rand.N(len(locks))]); err != nil {
			fmt.Println("no lock:", err)
			workload.Pause(ctx, 50*time.Millisecond)
		}
	}
}

func (h *holder) useOne(ctx context.Context, lock string) error {
	coordinator, err := h.Coordinator(ctx)
	if err != nil {
		return err
	}
	// The lock expires, seen from here, before it expires at the coordinator.
	until := time.Now().Add(useMax)
	var g grant
	err = h.Call(ctx, coordinator, "/acquire", grant{Lock: lock, Holder: h.Self}, &g)
	if status := new(workload.StatusError); errors.As(err, &status) && status.Status == http.StatusLocked {
		workload.Pause(ctx, rand.N(50*time.Millisecond))
		return nil // Try another one.
	}
	if err != nil {
		return err
	}
	if !h.keep(&g, until) {
		return errors.New("a later coordinator has asked for the locks of this process")
	}
	inUse, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if err = h.use(inUse, &g); err != nil && errors.Is(err, ledger.ErrFenced) && time.Now().Before(until) {
		// Another process used the lock before this one had to stop. There must be no such case.
		err = h.Ledger.Write(ctx, ledger.Entry{Resource: lock, By: h.Self, Violation: "lock was held twice: " + err.Error()})
	}
	h.drop()
	if err != nil {
		return err // The coordinator waits until the lock has expired.
	}
	return h.Call(ctx, coordinator, "/release", g, nil)
}

// use is the critical section: it reads a number and writes the next one.
func (h *holder) use(ctx context.Context, g *grant) error {
	right := ledger.Entry{Resource: g.Lock, Token: g.Token, Grant: g.Number, By: h.Self}
	if err := h.Ledger.Claim(ctx, &right); err != nil {
		return err
	}
	workload.Pause(ctx, rand.N(5*time.Millisecond))
	right.Seq++
	return h.Ledger.Write(ctx, right)
}
