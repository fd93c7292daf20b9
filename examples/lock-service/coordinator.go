package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/examples/internal/workload"
)

// coordinator is the side of a process that grants locks, while it is coordinator.
type coordinator struct {
	*workload.Process

	mu sync.Mutex
	// token is 0 unless this process is coordinator and knows which locks are held.
	token  uint64
	number uint64
	held   map[string]heldLock
}

type heldLock struct {
	grant

	until time.Time
}

// lead grants locks until the tenure ends. The former coordinator may have granted a lock to a process that requested
// it before this tenure began. Such a process either tells about it, or its lock expires within leaseMax.
func (c *coordinator) lead(ctx context.Context, token uint64) error {
	began := time.Now()
	held, silent := c.askForLocks(ctx, token)
	if len(silent) > 0 {
		fmt.Println("waits until all locks have expired, because of no response from", silent)
		workload.Pause(ctx, time.Until(began.Add(leaseMax)))
	}
	fmt.Printf("grants locks with token %d, %d are held\n", token, len(held))
	c.begin(token, held)
	<-ctx.Done()
	c.begin(0, nil)
	return workload.Stopped(ctx, context.Cause(ctx))
}

func (c *coordinator) begin(token uint64, held map[string]heldLock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token, c.number, c.held = token, 0, held
}

func (c *coordinator) current() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.token
}

// askForLocks asks all processes at the same time, so that silent ones don't add up.
func (c *coordinator) askForLocks(ctx context.Context, token uint64) (held map[string]heldLock, silent []string) {
	type answer struct {
		name  string
		locks []grant
		err   error
	}
	answers := make(chan answer, len(c.Names))
	for _, name := range c.Names {
		go func() {
			a := answer{name: name}
			a.err = c.Call(ctx, name, "/held", token, &a.locks)
			answers <- a
		}()
	}
	held = map[string]heldLock{}
	for range c.Names {
		a := <-answers
		if a.err != nil {
			silent = append(silent, a.name)
		}
		remember(held, a.locks, time.Now())
	}
	return held, silent
}

// remember adds the locks that a process holds. A process that was paused may report one
// that has expired, and that another process holds now.
func remember(held map[string]heldLock, locks []grant, now time.Time) {
	for _, g := range locks {
		if until := now.Add(time.Duration(g.Millis) * time.Millisecond); until.After(held[g.Lock].until) {
			held[g.Lock] = heldLock{g, until}
		}
	}
}

func (c *coordinator) serveAcquire(w http.ResponseWriter, r *http.Request) {
	var g grant
	if !workload.Decode(w, r, &g) {
		return
	}
	// Without this question, a coordinator that was paused could grant a lock that was
	// requested after its tenure. Its successor wouldn't know about it, nor wait for it.
	token := c.current()
	if token == 0 || !c.Leads(r.Context(), token) {
		http.Error(w, "this process isn't coordinator, or doesn't know yet which locks are held",
			http.StatusServiceUnavailable)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token != token {
		http.Error(w, "the tenure has ended", http.StatusServiceUnavailable)
		return
	}
	if before, ok := c.held[g.Lock]; ok && time.Now().Before(before.until) {
		http.Error(w, "held by "+before.Holder, http.StatusLocked)
		return
	}
	c.number++
	g.Token, g.Number, g.Millis = c.token, c.number, leaseMax.Milliseconds()
	c.held[g.Lock] = heldLock{g, time.Now().Add(leaseMax)}
	workload.Respond(w, g)
}

func (c *coordinator) serveRelease(w http.ResponseWriter, r *http.Request) {
	var g grant
	if !workload.Decode(w, r, &g) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if held := c.held[g.Lock]; held.Token == g.Token && held.Number == g.Number {
		delete(c.held, g.Lock)
	}
	workload.Respond(w, struct{}{})
}
