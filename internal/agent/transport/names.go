package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// lookupTimeout bounds the lookup of a name. It is long enough for a second name server after one that doesn't answer.
	lookupTimeout = 15 * time.Second
	// lookupWait is how long an attempt waits for a lookup, and lookupWaitKnown if earlier addresses of the name are known. The
	// lookup goes on meanwhile, for the next attempt.
	lookupWait      = dialTimeout
	lookupWaitKnown = 100 * time.Millisecond
	lookupInterval  = time.Second
)

// errNoAddressYet is the error of an attempt while the lookup of its name goes on.
var errNoAddressYet = errors.New("the name servers haven't answered yet")

// names resolves the names of peers. Lookups are independent of attempts to connect, which are shorter: a name server that
// doesn't answer must not prevent that the next one is asked. The last addresses of a name remain known when a lookup fails.
// The names are those of member lists, so there are few.
type names struct {
	mu     sync.Mutex
	byHost map[string]*lookup
}

type lookup struct {
	done  chan struct{}
	ended time.Time // zero while it is running
	known []netip.Addr
	err   error
}

func (t *Transport) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	l, done, wait := t.lookUp(host) //nolint:contextcheck // a lookup outlives the attempt that began it
	select {
	case <-done:
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	t.names.mu.Lock()
	defer t.names.mu.Unlock()
	switch {
	case len(l.known) > 0:
		return l.known, nil
	case l.err != nil:
		return nil, fmt.Errorf("cannot resolve %s: %w", host, l.err)
	}
	return nil, fmt.Errorf("cannot resolve %s: %w", host, errNoAddressYet)
}

// lookUp begins a lookup, unless one is running or has just ended. It returns how long to wait for its end.
func (t *Transport) lookUp(host string) (*lookup, <-chan struct{}, time.Duration) {
	t.names.mu.Lock()
	defer t.names.mu.Unlock()
	if t.names.byHost == nil {
		t.names.byHost = map[string]*lookup{}
	}
	l := t.names.byHost[host]
	if l == nil || !l.ended.IsZero() && time.Since(l.ended) >= lookupInterval {
		if l == nil {
			l = &lookup{}
			t.names.byHost[host] = l
		}
		l.done, l.ended = make(chan struct{}), time.Time{}
		t.tasks.Go(func() { t.ask(host, l) })
	}
	if len(l.known) > 0 {
		return l, l.done, lookupWaitKnown
	}
	return l, l.done, lookupWait
}

func (t *Transport) ask(host string, l *lookup) {
	ctx, cancel := context.WithTimeout(t.ctx, lookupTimeout)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	t.names.mu.Lock()
	defer t.names.mu.Unlock()
	if l.err = err; err == nil {
		l.known = found
	}
	l.ended = time.Now()
	close(l.done)
}

// reportLookup reports that the name of a peer can't be resolved. That it doesn't exist is no problem: the peer's pod may be
// created later.
func (t *Transport) reportLookup(peer string, err error) {
	var failed *net.DNSError
	if errors.As(err, &failed) && !failed.IsNotFound && t.addProblem(peer, problem{kind: "name", text: fmt.Sprintf("peer %s: %s", peer, err)}) {
		t.Log.Error("cannot connect to peer", "peer", peer, "error", err)
	}
}
