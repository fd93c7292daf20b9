package agents

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Whoever may create pods in a namespace can write agents of their own, so these limits are for all agents of a
// namespace together. Honest agents send some kilobytes in an election.
const (
	// tenantByteRate is how many bytes a second the operator reads from the agents of a namespace that have sent more than
	// tenantByteBurst: see lineCost.
	tenantByteRate  = 2 << 20
	tenantByteBurst = 16 << 20
	// maxUnread is how many bytes of lines may wait for their end or for being decoded, in all, and maxUnreadOfTenant
	// those of the agents of a namespace.
	maxUnread         = 64 << 20
	maxUnreadOfTenant = 4 << 20
	// Lines of more than shortLine bytes are decoded in turns: decoding at a time, decodingOfTenant of a namespace.
	shortLine        = 4 << 10
	decoding         = 4
	decodingOfTenant = 2
)

// tenants are the namespaces whose agents are connected.
type tenants struct {
	mu     sync.Mutex
	byName map[string]*tenant
	unread int
}

type tenant struct {
	all      *tenants
	sessions int
	unread   int
	bytes    *rate.Limiter
}

// enter returns the tenant of a session, which must leave it.
func (t *tenants) enter(namespace string) *tenant {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byName == nil {
		t.byName = map[string]*tenant{}
	}
	of := t.byName[namespace]
	if of == nil {
		of = &tenant{all: t, bytes: rate.NewLimiter(tenantByteRate, tenantByteBurst)}
		t.byName[namespace] = of
	}
	of.sessions++
	return of
}

// leave forgets a tenant some time after its last session, when it may send at the full rate again: otherwise an agent
// could reconnect for that.
func (t *tenants) leave(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.byName[namespace]
	if of.sessions--; of.sessions == 0 {
		time.AfterFunc(tenantByteBurst/tenantByteRate*time.Second, func() { t.forget(namespace) })
	}
}

func (t *tenants) forget(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if of := t.byName[namespace]; of != nil && of.sessions == 0 {
		delete(t.byName, namespace)
	}
}

// keep charges a number of bytes that wait in memory, or with a negative number no longer do.
func (t *tenant) keep(bytes int) error {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	if bytes > 0 && (t.unread+bytes > maxUnreadOfTenant || t.all.unread+bytes > maxUnread) {
		return fmt.Errorf("the agents of the namespace must have at most %d bytes of unfinished reports", maxUnreadOfTenant)
	}
	t.unread += bytes
	t.all.unread += bytes
	return nil
}

// await waits until the operator may handle a line of an agent.
func (c *session) await(ctx context.Context, line int) error {
	for _, limit := range []*rate.Limiter{c.stream.byteLimit, c.tenant.bytes} {
		if err := limit.WaitN(ctx, lineCost+line); err != nil {
			return err
		}
	}
	return nil
}

// decode decodes a line. Long lines wait for their turn.
func (c *session) decode(line []byte) error {
	if len(line) > shortLine {
		done, err := c.stream.streams.decoding.Acquire(c.ctx, c.stream.agent.Pod.Namespace)
		if err != nil {
			return err
		}
		defer done()
	}
	return c.decoder.decode(c.ctx, line)
}
