package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"
)

// The causes for which the context of the coordinator's function ends, as returned by context.Cause. If the context
// that was passed to Run has ended, the cause is that of this context.
var (
	// ErrStop means that another process will take over as soon as the function has returned.
	ErrStop = errors.New("the office is being handed over")
	// ErrLost means that the tenure has ended.
	ErrLost = errors.New("the tenure has ended")
	// ErrNotRenewed means that the agent hasn't confirmed the tenure in time.
	ErrNotRenewed = errors.New("the agent didn't confirm the tenure in time")
	// ErrAgentGone means that the connection to the agent is lost.
	ErrAgentGone = errors.New("the connection to the agent is lost")
)

// State is the state of a group, as this process's agent reported it.
type State struct {
	Group string `json:"group"`
	// Self is the name of this process.
	Self string `json:"self"`
	// Coordinator is empty while there is none.
	Coordinator string `json:"coordinator"`
	// Leading reports whether this process is coordinator and may act as such.
	Leading bool `json:"leading"`
	// Priority is the coordinator's priority.
	Priority uint32 `json:"priority"`
	Term     uint64 `json:"term"`
	// Token is the fencing token to pass to resources. It is 0 unless Leading.
	Token uint64 `json:"token"`
	// Until is the time until which this process is coordinator without another renewal, on this machine's monotonic
	// clock. It is zero if there is no such time: in the mode Available, in states of Leader and Watch, and unless
	// Leading. That clock stops while the machine is suspended; Run uses one that doesn't.
	Until time.Time `json:"-"`

	// until is Until on the clock of the agent's connection. A session that was asked to stop
	// learns it, too: its function must have returned by then.
	until time.Duration
}

// isLeadingAt reports whether this process is still coordinator at a time of a leaseClock.
func (s *State) isLeadingAt(now time.Duration) bool {
	return s.Leading && (s.until == 0 || now < s.until)
}

// Option configures the connection to the agent.
type Option func(*agent)

// At sets the agent's address, such as http://127.0.0.1:7374, or unix:///run/conclave/agent.sock for a Unix socket. The
// default is the value of the environment variable CONCLAVE_AGENT, or else http://127.0.0.1:7374.
func At(address string) Option {
	return func(a *agent) { a.address = address }
}

// LogTo sets the logger. Run logs why it has no session, and the error of a function
// whose context had ended. The default is slog.Default.
func LogTo(log *slog.Logger) Option {
	return func(a *agent) { a.log = log }
}

// DialWith sets the function that connects with the agent, in place of that of a net.Dialer. Pass the same Option to
// all calls of Run: they share a connection then, as without this Option.
func DialWith(connect func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	c := newConnections(connect)
	return func(a *agent) { a.connections = c }
}

// OnRenewal sets a function that Run calls with each renewal, one after the other. It is for programs that must stop
// something else in time, such as another process: see Deadline. It must not block.
func OnRenewal(f func(Renewal)) Option {
	return func(a *agent) { a.onRenewal = f }
}

// Renewal is a response by which the agent confirms the tenure. Run receives the first one
// before it calls the function, and further ones until the function has returned.
type Renewal struct {
	// Self is the name of this process.
	Self        string
	Term, Token uint64
	// Sent is when the client sent its request, and Received when the response had come. Until is when the tenure ends
	// without a further renewal, and 0 in the mode Available. They are times of CLOCK_BOOTTIME on Linux.
	Sent, Received, Until time.Duration
	// Stopping: the agent hands the office over, at the latest when the drain timeout has
	// passed since a time after Sent of the last renewal that isn't Stopping.
	Stopping bool
	// Ended: the tenure has ended, and another process may be coordinator. It is the last one,
	// and only Term and Token are set.
	Ended bool
	// Lease and DrainTimeout are those of the group. Lease is 0 in the mode Available.
	Lease, DrainTimeout time.Duration
}

const (
	defaultAddress = "http://127.0.0.1:7374"
	// dialTimeout and responseTimeout are generous, because the agent is on the same machine.
	dialTimeout     = 2 * time.Second
	responseTimeout = 5 * time.Second
	// maxSilence is three times the interval at which agents send data in a stream.
	maxSilence = 15 * time.Second
	// maxResponse limits the size of a response.
	maxResponse = 64 << 10
)

// agent is the API of the agent for one group.
type agent struct {
	address string
	group   string
	// root is the URL of the agent, and base that of the group.
	root, base  string
	log         *slog.Logger
	connections *connections
	http        http.Client
	clock       leaseClock
	// renewals is nil without Run.
	renewals *renewals
	// onRenewal is nil or a function for renewals.
	onRenewal func(Renewal)
	// prepare is nil or the function of Prepare.
	prepare func(context.Context, time.Duration)
}

// newTransport returns a transport that keeps connections alive, so that a renewal
// takes one round trip. It ignores proxy settings of the environment.
func newTransport(connect dialFunc) *http.Transport {
	return &http.Transport{
		DialContext:           toAgent(connect),
		ResponseHeaderTimeout: responseTimeout,
		IdleConnTimeout:       time.Minute,
		MaxIdleConnsPerHost:   2,
		DisableCompression:    true,
	}
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func newAgent(group string, options []Option) (*agent, error) {
	a := &agent{group: group, log: slog.Default(), connections: direct, clock: clock}
	a.address = cmp.Or(os.Getenv("CONCLAVE_AGENT"), defaultAddress)
	for _, option := range options {
		option(a)
	}
	host, err := hostOf(a.address)
	if err != nil {
		return nil, err
	}
	if group == "" {
		return nil, errors.New("the name of the group must not be empty")
	}
	a.root = "http://" + host
	a.base = a.root + "/v1/groups/" + url.PathEscape(group)
	a.http = http.Client{Transport: a.connections.forLeader, CheckRedirect: noRedirect}
	return a, nil
}

// statusError is a response with an unexpected status.
type statusError struct {
	status  int
	message string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the agent responded with status %d: %s", e.status, e.message)
}

// isClientError reports whether the agent rejected a request as invalid. Otherwise, a retry may succeed.
func isClientError(err error) bool {
	var e *statusError
	return errors.As(err, &e) && e.status >= 400 && e.status < 500 && e.status != http.StatusTooManyRequests
}

func newStatusError(status int, body []byte) error {
	var response struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &response) != nil || response.Error == "" {
		response.Error = fmt.Sprintf("%.100q", body)
	}
	return &statusError{status, response.Error}
}

// request sends a request for the group.
func (a *agent) request(ctx context.Context, method, path string,
	body []byte,
) (status int, response []byte, err error) {
	return send(ctx, &a.http, method, a.base+path, body, maxResponse)
}

// send sends a request and reads the whole response, so that the connection can be reused.
func send(ctx context.Context, to *http.Client, method, url string, body []byte,
	most int64,
) (status int, response []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	// It isn't sent: the transport repeats a request on a connection that the agent has closed.
	request.Header["X-Idempotency-Key"] = []string{}
	r, err := to.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer r.Body.Close()
	response, err = io.ReadAll(io.LimitReader(r.Body, most))
	return r.StatusCode, response, err
}

// leaderResponse is the agent's response to a query for the coordinator.
type leaderResponse struct {
	State

	RemainingMillis *int64 `json:"remainingMillis"`
}

// stateOf returns the state that a response contains. The client adds the remaining time of the response to the time
// before the request, because it doesn't know how long the response took. The coordinator's agent responds with status
// 200, any other agent with 503. Both include the name of the group.
func (r *leaderResponse) stateOf(group string, status int, sent time.Duration) (State, error) {
	if r.Group != group || r.Leading != (status == http.StatusOK) {
		return State{}, &statusError{status, "the response isn't the state of group " + group}
	}
	if r.RemainingMillis != nil {
		r.until = max(1, sent+time.Duration(*r.RemainingMillis)*time.Millisecond)
	}
	return r.State, nil
}

// queryLeader queries the coordinator. The query may have the parameter promiseMillis. Without it, the response has no
// remaining time.
func (a *agent) queryLeader(ctx context.Context, query url.Values) (State, error) {
	path := "/leader"
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	sent, sentAt := time.Now(), a.clock.now()
	status, body, err := a.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return State{}, err
	}
	var response leaderResponse
	if json.Unmarshal(body, &response) != nil || response.Group == "" {
		return State{}, newStatusError(status, body)
	}
	state, err := response.stateOf(a.group, status, sentAt)
	if err == nil && state.Leading && response.RemainingMillis != nil {
		state.Until = sent.Add(time.Duration(*response.RemainingMillis) * time.Millisecond)
	}
	return state, err
}

// confirmStopped notifies the agent that the application has stopped.
func (a *agent) confirmStopped(ctx context.Context, session string, term uint64) error {
	body := fmt.Appendf(nil, `{"term":%d}`, term)
	status, response, err := a.request(ctx, http.MethodPost, "/session/"+url.PathEscape(session)+"/stopped", body)
	if err != nil {
		return err
	}
	if status != http.StatusNoContent {
		return newStatusError(status, response)
	}
	return nil
}

// Leader queries the coordinator of the group. A group without a coordinator isn't an error. The state may be outdated
// when Leader returns, so its Until is zero: use Run, or LeaderWithPromise, to act as coordinator.
func Leader(ctx context.Context, group string, options ...Option) (State, error) {
	return leader(ctx, group, nil, options)
}

// LeaderWithPromise is like Leader, for a process that acts as coordinator without Run. If this process is coordinator,
// the agent promises that no other process becomes coordinator before the returned Until, which is at most the given
// time away. A handover waits for the end of the promise, so don't ask for more time than you need. In the mode
// Available there is no promise, and Until is zero.
func LeaderWithPromise(ctx context.Context, group string, atMost time.Duration, options ...Option) (State, error) {
	if atMost < time.Millisecond {
		return State{}, fmt.Errorf("the promise must last at least a millisecond, got %s", atMost)
	}
	return leader(ctx, group, url.Values{"promiseMillis": {strconv.FormatInt(atMost.Milliseconds(), 10)}}, options)
}

func leader(ctx context.Context, group string, query url.Values, options []Option) (State, error) {
	a, err := newAgent(group, options)
	if err != nil {
		return State{}, err
	}
	state, err := a.queryLeader(ctx, query)
	if err != nil {
		return State{}, fmt.Errorf("cannot query the coordinator of group %s: %w", group, err)
	}
	return state, nil
}
