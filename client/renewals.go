package client

import (
	"context"
	"encoding/json"
	"errors"
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

// renewals renews the sessions that this process has with one agent. Those that are due at the same time share a request: a
// request for each of a hundred sessions, several times per lease, would need much more processor time.
type renewals struct {
	base string
	http http.Client
	// runs counts the calls of Run. Once it is 0 again, no connections remain.
	runs atomic.Int32

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
	// collectTime is how long a renewal that isn't urgent waits for others that are due at the same time.
	collectTime = time.Millisecond
	// maxRenewals limits the size of a response.
	maxRenewals = 1 << 20
)

// renew renews a session. The result is that of a failed query if ctx ends before.
func (a *agent) renew(ctx context.Context, session string, urgent bool) queryResult {
	item, r := &renewal{a, session, make(chan queryResult, 1)}, a.renewals
	r.mu.Lock()
	r.waiting = append(r.waiting, item)
	first := len(r.waiting) == 1
	r.mu.Unlock()
	if urgent || r.runs.Load() == 1 {
		go r.send() //nolint:contextcheck // The request is for other sessions, too.
	} else if first {
		time.AfterFunc(collectTime, r.send)
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
		batch := waiting[:renewalsMax]
		go r.request(batch)
		waiting = waiting[renewalsMax:]
	}
	if len(waiting) > 0 {
		r.request(waiting)
	}
}

type renewalRequest struct {
	Group   string `json:"group"`
	Session string `json:"session"`
}

// request sends a request for some sessions, and passes the results on.
func (r *renewals) request(batch []*renewal) {
	body := struct {
		Sessions []renewalRequest `json:"sessions"`
	}{make([]renewalRequest, len(batch))}
	sent := make([]time.Duration, len(batch))
	for i, item := range batch {
		body.Sessions[i] = renewalRequest{item.agent.group, item.session}
		sent[i] = item.agent.clock.now()
	}
	var response struct {
		Results []struct {
			Status int             `json:"status"`
			Leader *leaderResponse `json:"leader"`
			Error  string          `json:"error"`
		} `json:"results"`
	}
	text, err := json.Marshal(body)
	if err == nil {
		err = post(&r.http, r.base+"/v1/renewals", text, &response)
	}
	if r.runs.Load() == 0 {
		r.http.CloseIdleConnections()
	}
	if err == nil && len(response.Results) != len(batch) {
		err = errors.New("the agent's response doesn't have a result for each session")
	}
	for i, item := range batch {
		result := queryResult{sent: sent[i], received: item.agent.clock.now(), err: err}
		if err == nil {
			one := &response.Results[i]
			if one.Leader == nil {
				result.err = &statusError{one.Status, one.Error}
			} else {
				result.state, result.err = one.Leader.stateOf(item.agent.group, one.Status, sent[i])
			}
		}
		item.result <- result
	}
}

// post posts a JSON value, and reads the response.
func post(to *http.Client, url string, body []byte, response any) error {
	ctx, cancel := context.WithTimeout(context.Background(), responseTimeout)
	defer cancel()
	status, text, err := send(ctx, to, http.MethodPost, url, body, maxRenewals)
	if err != nil {
		return err
	}
	if status != http.StatusOK || json.Unmarshal(text, response) != nil {
		return newStatusError(status, text)
	}
	return nil
}

// join returns the renewals of sessions with an agent. The caller leaves when it has no session any more.
func (c *connections) join(a *agent) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.renewals[a.address]
	if r == nil {
		r = &renewals{base: a.root, http: http.Client{Transport: newTransport(c.connect), CheckRedirect: noRedirect}}
		c.renewals[a.address] = r
	}
	r.runs.Add(1)
	a.renewals = r
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if r.runs.Add(-1) == 0 {
			delete(c.renewals, a.address)
			r.http.CloseIdleConnections()
		}
	}
}

// renewalDelay returns in how much time a session should renew. Sessions renew at the same moments, about an interval apart,
// so that they share requests.
func renewalDelay(now, interval time.Duration) time.Duration {
	slot := time.Millisecond
	for 6*slot <= interval {
		slot *= 2
	}
	return (now + interval + slot/2).Truncate(slot) - now
}
