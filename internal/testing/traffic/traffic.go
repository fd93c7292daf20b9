// Package traffic has an application that answers while it leads, and clients that measure for how long it doesn't.
package traffic

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// interval is the time between two requests of a client, and a request fails after timeout.
	interval, timeout = 2 * time.Millisecond, 5 * time.Second
	// waitedMin is the shortest time that counts as waiting, and openMin the shortest gap at the end that counts as open.
	waitedMin, openMin = 10 * time.Millisecond, time.Second
	// Serve ends connections grace after its context, and those without an answer so far after firstGrace.
	grace, firstGrace = 5 * time.Millisecond, 500 * time.Millisecond
)

// Serve answers each byte with a byte until ctx ends. An application calls it while it leads.
func Serve(ctx context.Context, address string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	tcp := l.(*net.TCPListener) //nolint:errcheck,forcetypeassert // Network "tcp" has no other.
	stop := context.AfterFunc(ctx, func() { _ = tcp.SetDeadline(time.Now().Add(grace)) })
	defer stop()
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		c, err := l.Accept()
		if err != nil {
			return l.Close()
		}
		serving.Go(func() {
			defer c.Close()
			ends := func(after time.Duration) (stop func() bool) {
				return context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now().Add(after)) })
			}
			stop := ends(firstGrace)
			_, _ = io.CopyN(c, c, 1)
			stop()
			defer ends(grace)()
			_, _ = io.Copy(c, c)
		})
	}
}

// Seen is what a client has seen.
type Seen struct {
	// Gap is the longest time without an answer, in milliseconds. It is Open if no answer followed.
	Gap      float64 `json:"gapMillis"`
	Open     bool    `json:"open,omitempty"`
	Requests int     `json:"requests"`
	Failed   int     `json:"failed"`
	Waited   int     `json:"waited"` // They were answered late.
	// Errors has the number of requests that failed for each reason.
	Errors map[string]int `json:"errors,omitempty"`
}

// Clients are one that opens a connection for each request, and one that keeps its connection.
type Clients struct {
	New  Seen `json:"new"`
	Kept Seen `json:"kept"`
}

// Measure lets both send requests until ctx ends.
func Measure(ctx context.Context, address string) (c Clients) {
	var running sync.WaitGroup
	running.Go(func() { c.New = Send(ctx, false, address) })
	running.Go(func() { c.Kept = Send(ctx, true, address) })
	running.Wait()
	return c
}

// answer is what became of a request. Its times count from the first request.
type answer struct {
	sent, ended time.Duration
	err         error
}

// Send sends requests to addresses in turn until ctx ends, and waits for the answers. It opens a connection for each
// request, or keeps one as long as it can, and then sends a request when the one before has ended.
func Send(ctx context.Context, keep bool, addresses ...string) Seen {
	var mu sync.Mutex
	var answers []answer
	began := time.Now()
	send := func(c *net.Conn, n int) {
		a := answer{sent: time.Since(began)}
		a.err = Ask(c, addresses[n%len(addresses)])
		a.ended = time.Since(began)
		mu.Lock()
		defer mu.Unlock()
		answers = append(answers, a)
	}
	var kept net.Conn
	defer closeConn(&kept)
	var running sync.WaitGroup
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		if keep {
			send(&kept, n)
		} else {
			running.Go(func() {
				var c net.Conn
				defer closeConn(&c)
				send(&c, n)
			})
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
		}
	}
	lasted := time.Since(began)
	running.Wait()
	return summarize(answers, lasted)
}

// summarize returns what a client has seen that sent requests for this time.
func summarize(answers []answer, lasted time.Duration) Seen {
	s := Seen{Requests: len(answers), Errors: map[string]int{}}
	slices.SortFunc(answers, func(a, b answer) int { return int(a.ended - b.ended) })
	var last, longest time.Duration
	for _, a := range answers {
		if a.err != nil {
			reason := a.err
			for inner := reason; inner != nil; inner = errors.Unwrap(inner) {
				reason = inner // It has no address.
			}
			s.Failed++
			s.Errors[reason.Error()]++
			continue
		}
		if a.ended-a.sent >= waitedMin {
			s.Waited++
		}
		longest, last = max(longest, a.ended-last), a.ended
	}
	if rest := lasted - last; rest > longest {
		longest, s.Open = rest, rest >= openMin
	}
	s.Gap = float64(longest.Microseconds()) / 1000
	return s
}

// Ask sends a request on a connection, which it opens if there is none, and closes if the request fails.
func Ask(c *net.Conn, address string) (err error) {
	end := time.Now().Add(timeout)
	if *c == nil {
		opened, err := (&net.Dialer{Deadline: end}).Dial("tcp", address)
		if err != nil {
			return err
		}
		*c = opened
		// A client that opens many connections must not run out of ports.
		_ = opened.(*net.TCPConn).SetLinger(0) //nolint:errcheck,forcetypeassert // Network "tcp" has no other.
	}
	err = (*c).SetDeadline(end)
	_, failed := (*c).Write([]byte("?"))
	_, unanswered := (*c).Read(make([]byte, 1))
	if err = cmp.Or(err, failed, unanswered); err != nil {
		closeConn(c)
	}
	return err
}

func closeConn(c *net.Conn) {
	if *c != nil {
		_ = (*c).Close() // Nothing is lost.
		*c = nil
	}
}
