package client

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// connections are those of this process with agents that are reached by one dialFunc.
type connections struct {
	connect dialFunc
	mu      sync.Mutex
	// renewals are those with each agent, by its address, while Run runs.
	renewals map[string]*renewals
	// forLeader is the transport of all calls of Leader.
	forLeader *http.Transport
}

func newConnections(connect dialFunc) *connections {
	return &connections{connect: connect, renewals: map[string]*renewals{}, forLeader: newTransport(connect)}
}

// direct are the connections without DialWith.
var direct = newConnections(new(net.Dialer).DialContext)

// join lets the sessions of a call of Run renew together with those of others. The caller leaves when it has no session
// any more.
func (c *connections) join(a *agent) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.renewals[a.address]
	if r == nil {
		transport := newTransport(c.connect)
		transport.MaxIdleConnsPerHost = 5 // An agent has 400 sessions at most.
		r = &renewals{base: a.root, http: http.Client{Transport: transport, CheckRedirect: noRedirect}}
		r.ctx, r.end = context.WithCancel(context.Background())
		c.renewals[a.address] = r
	}
	r.runs.Add(1)
	a.renewals = r
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if r.runs.Add(-1) == 0 {
			delete(c.renewals, a.address)
			r.end()
			r.http.CloseIdleConnections()
		}
	}
}

// renewals renews the sessions that this process has with one agent. Those that are due at the same time share a
// request: a request for each of a hundred sessions, several times per lease, would need much more processor time.
type renewals struct {
	base string
	http http.Client
	// runs counts the calls of Run. Once it is 0 again, ctx ends, and no connections remain.
	runs atomic.Int32
	ctx  context.Context //nolint:containedctx // Requests are for several sessions.
	end  context.CancelFunc

	mu      sync.Mutex
	waiting []*renewal
}

// renewal is a renewal of one session.
type renewal struct {
	agent   *agent
	session string
	result  chan queryResult
}

const (
	// renewalsMax is the maximum of sessions in a request.
	renewalsMax = 100
	// collectTime is how long a renewal waits for others that are due at the same time.
	collectTime = time.Millisecond
	// maxRenewals limits the size of a response.
	maxRenewals = 1 << 20
)

// renew renews a session. The result is that of a failed query if ctx ends before. A session that renews alone doesn't
// wait for others, nor for their groups.
func (a *agent) renew(ctx context.Context, session string, alone bool) queryResult {
	item, r := &renewal{a, session, make(chan queryResult, 1)}, a.renewals
	if alone || r.runs.Load() == 1 {
		go r.request([]*renewal{item})
	} else {
		r.mu.Lock()
		r.waiting = append(r.waiting, item)
		first := len(r.waiting) == 1
		r.mu.Unlock()
		if first {
			time.AfterFunc(collectTime, r.send)
		}
	}
	select {
	case result := <-item.result:
		return result
	case <-ctx.Done():
		return queryResult{err: ctx.Err()}
	}
}

// send sends all renewals that wait.
func (r *renewals) send() {
	r.mu.Lock()
	waiting := r.waiting
	r.waiting = nil
	r.mu.Unlock()
	for len(waiting) > renewalsMax {
		go r.request(waiting[:renewalsMax])
		waiting = waiting[renewalsMax:]
	}
	r.request(waiting)
}

type renewalRequest struct {
	Group   string `json:"group"`
	Session string `json:"session"`
}

// request sends a request for some sessions, and passes the results on.
func (r *renewals) request(batch []*renewal) {
	sessions, sent := make([]renewalRequest, len(batch)), make([]time.Duration, len(batch))
	for i, item := range batch {
		sessions[i] = renewalRequest{item.agent.group, item.session}
		sent[i] = item.agent.clock.now()
	}
	var response struct {
		Results []struct {
			Status int             `json:"status"`
			Leader *leaderResponse `json:"leader"`
			Error  string          `json:"error"`
		} `json:"results"`
	}
	text, err := json.Marshal(map[string]any{"sessions": sessions})
	if err == nil {
		err = r.post(text, &response)
	}
	if err == nil && len(response.Results) != len(batch) {
		err = errors.New("the agent's response doesn't have a result for each session")
	}
	for i, item := range batch {
		result := queryResult{sent: sent[i], received: item.agent.clock.now(), err: err}
		if err == nil {
			if one := &response.Results[i]; one.Leader == nil {
				result.err = &statusError{one.Status, one.Error}
			} else {
				result.state, result.err = one.Leader.stateOf(item.agent.group, one.Status, sent[i])
			}
		}
		item.result <- result
	}
}

// post sends a request, and reads the response.
func (r *renewals) post(body []byte, response any) error {
	status, text, err := send(r.ctx, &r.http, http.MethodPost, r.base+"/v1/renewals", body, maxRenewals)
	if err != nil {
		return err
	}
	if status != http.StatusOK || json.Unmarshal(text, response) != nil {
		return newStatusError(status, text)
	}
	return nil
}

// phase keeps the programs of a machine from renewing at the same moments.
var phase = rand.N(time.Second)

// renewalDelay returns in how much time a session should renew. Sessions renew at the same moments, about an interval
// apart, so that they share requests.
func renewalDelay(now, interval time.Duration) time.Duration {
	slot := time.Millisecond
	for 6*slot <= interval {
		slot *= 2
	}
	now += phase
	return (now + interval + slot/2).Truncate(slot) - now
}
