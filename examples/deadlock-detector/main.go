// Command deadlock-detector runs transactions that lock two sites each, and therefore run
// into deadlocks. The coordinator builds the global wait-for graph, finds the cycles, and
// aborts one transaction of each. See README.md.
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

func main() {
	workload.Main("deadlock-detector", func(p *workload.Process) workload.Program {
		s := newSite(p)
		d := &detector{Process: p}
		t := &transactions{Process: p}
		mux := http.NewServeMux()
		mux.HandleFunc("POST /lock", s.serveLock)
		mux.HandleFunc("POST /abort", t.serveAbort)
		mux.HandleFunc("POST /waits", func(w http.ResponseWriter, _ *http.Request) {
			workload.Respond(w, report{Waiting: t.waits(), Edges: s.edges()})
		})
		return workload.Program{Handler: mux, Work: t.work, Lead: d.lead}
	})
}

// attempt is one execution of a transaction. An aborted transaction is executed again,
// with the same start but a higher number, so it is the oldest one at last, and no longer
// a victim.
type attempt struct {
	Start  int64  `json:"start"` // in microseconds
	Home   string `json:"home"`
	Number int    `json:"number"`
}

func (a attempt) String() string { return fmt.Sprintf("%d.%s.%d", a.Start, a.Home, a.Number) }

// transactions is the side of a process that executes transactions, one after the other.
type transactions struct {
	*workload.Process

	mu sync.Mutex
	// waiting is the attempt that waits for a lock, and abort ends it.
	waiting *attempt
	abort   context.CancelCauseFunc
	// token is the highest one of a coordinator that has aborted a transaction.
	token uint64
}

var (
	errVictim   = errors.New("aborted by the coordinator to resolve a deadlock")
	errLockLost = errors.New("the site that granted the lock is gone")
)

// think is how long a transaction works on its first site.
const think = 10 * time.Millisecond

func (t *transactions) work(ctx context.Context) {
	for ctx.Err() == nil {
		sites := rand.Perm(len(t.Names))[:2]
		a := attempt{Start: time.Now().UnixMicro(), Home: t.Self, Number: 1}
		for ; ctx.Err() == nil; a.Number++ {
			err := t.execute(ctx, a, t.Names[sites[0]], t.Names[sites[1]])
			if err == nil {
				break
			}
			if !errors.Is(err, errVictim) {
				fmt.Printf("transaction %s: %v\n", a, err)
				workload.Pause(ctx, 50*time.Millisecond)
			}
			workload.Pause(ctx, rand.N(think))
		}
	}
}

// execute locks both sites, and then writes to both. Locks are held until the end, so
// only an end resolves a wait.
func (t *transactions) execute(ctx context.Context, a attempt, first, second string) error {
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	one, err := t.lock(ctx, abort, a, first)
	if err != nil {
		return err
	}
	workload.Pause(ctx, think)
	two, err := t.lock(ctx, abort, a, second)
	if err != nil {
		return err
	}
	// From here on, the coordinator cannot abort the attempt: it doesn't wait.
	for _, right := range []*ledger.Entry{one, two} {
		if err := t.Ledger.Claim(ctx, right); err != nil {
			return err
		}
	}
	for _, right := range []*ledger.Entry{one, two} {
		right.Seq++
		if err := t.Ledger.Write(ctx, *right); err != nil {
			return err
		}
	}
	return nil
}

// lock waits until a site grants its lock. The site keeps the lock for this attempt until
// the connection ends: when ctx ends, or with one of the two processes.
func (t *transactions) lock(ctx context.Context, abort context.CancelCauseFunc, a attempt, at string) (*ledger.Entry, error) {
	t.setWaiting(&a, abort)
	defer t.setWaiting(nil, nil)
	var right ledger.Entry
	stream, err := t.Open(ctx, at, "/lock", a)
	if err == nil {
		err = stream.Decode(&right)
	}
	if err != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	right.By, right.Note = t.Self, a.String()
	go func() {
		_ = stream.Decode(&struct{}{}) // It ends with the connection.
		abort(errLockLost)
	}()
	return &right, nil
}

func (t *transactions) setWaiting(a *attempt, abort context.CancelCauseFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting, t.abort = a, abort
}

// waits returns the attempt that waits for a lock, if any.
func (t *transactions) waits() *attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting
}

// verdict is the decision of a coordinator to abort an attempt.
type verdict struct {
	Victim attempt `json:"victim"`
	Token  uint64  `json:"token"`
}

// serveAbort aborts the attempt if it still waits.
func (t *transactions) serveAbort(w http.ResponseWriter, r *http.Request) {
	var v verdict
	if !workload.Decode(w, r, &v) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case v.Token < t.token:
		http.Error(w, "there is a later coordinator", http.StatusConflict)
		return
	case t.waiting == nil || *t.waiting != v.Victim:
		t.token = v.Token
		http.Error(w, "this attempt doesn't wait", http.StatusGone)
		return
	}
	t.token = v.Token
	t.waiting = nil // From now on, the wait is over, whatever the site still reports.
	t.abort(errVictim)
	workload.Respond(w, v)
}
