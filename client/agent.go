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
	"time"
)

// Why the context of a function that leads has ended, as its context.Cause.
// When the context that Run was given has ended, it is the cause of that.
var (
	// ErrStop: another process shall take over, and waits for the function to return.
	ErrStop = errors.New("the role is to be handed over")
	// ErrLost: the tenure is over.
	ErrLost = errors.New("the role was lost")
	// ErrNotRenewed: the agent hasn't confirmed in time that this process still leads.
	ErrNotRenewed = errors.New("the agent didn't confirm the role in time")
	// ErrAgentGone: the connection to the agent broke.
	ErrAgentGone = errors.New("the agent is gone")
)

// State is who leads a group, as the agent of this process knew.
type State struct {
	Group string `json:"group"`
	// Self is the name of this process.
	Self string `json:"self"`
	// Coordinator is empty while there is none.
	Coordinator string `json:"coordinator"`
	// Leading: this process is the coordinator, and may act as such.
	Leading bool `json:"leading"`
	// Priority is the coordinator's.
	Priority uint32 `json:"priority"`
	Term     uint64 `json:"term"`
	// Token is what to show to the resource, 0 unless Leading.
	Token uint64 `json:"token"`
	// Until is when this may end if nobody asks again, on the monotonic clock of
	// this machine. It is zero where nothing is known to end it: in the mode
	// Available, in what Watch tells, and of course unless Leading.
	Until time.Time `json:"-"`
}

// leadsNow reports whether it is still true that this process leads.
func (s *State) leadsNow() bool {
	return s.Leading && (s.Until.IsZero() || time.Now().Before(s.Until))
}

// Option changes how an agent is asked.
type Option func(*agent)

// At is the agent's address, as in http://127.0.0.1:7374. Without it, it is what
// the environment variable CONCLAVE_AGENT says, or that address.
func At(address string) Option {
	return func(a *agent) { a.address = address }
}

// LogTo is where Run says why it has no session, and what a function returned
// that nobody waited for any more. Without it, that is slog.Default.
func LogTo(log *slog.Logger) Option {
	return func(a *agent) { a.log = log }
}

const (
	defaultAddress = "http://127.0.0.1:7374"
	// dialPatience and answerPatience are generous: the agent is on the same machine.
	dialPatience   = 2 * time.Second
	answerPatience = 5 * time.Second
	// silenceMax is three times as long as an agent's streams are ever silent.
	silenceMax = 15 * time.Second
	// answerMax is how much of an answer is read.
	answerMax = 64 << 10
)

// agent is the one beside this process, asked about one group.
type agent struct {
	address string
	group   string
	base    string
	log     *slog.Logger
	http    http.Client
}

// newTransport makes one that keeps connections, so that a renewal costs one
// round trip. Agents are never behind a proxy, whatever the environment says.
func newTransport() *http.Transport {
	return &http.Transport{
		DialContext:           (&net.Dialer{Timeout: dialPatience}).DialContext,
		ResponseHeaderTimeout: answerPatience,
		IdleConnTimeout:       time.Minute,
		MaxIdleConnsPerHost:   2,
		DisableCompression:    true,
	}
}

// kept is the transport of those who ask once, and perhaps soon again.
var kept = newTransport()

func connect(group string, transport *http.Transport, options []Option) (*agent, error) {
	a := &agent{group: group, log: slog.Default(), http: http.Client{Transport: transport}}
	a.address = cmp.Or(os.Getenv("CONCLAVE_AGENT"), defaultAddress)
	for _, option := range options {
		option(a)
	}
	u, err := url.Parse(a.address)
	if err != nil || u.Scheme != "http" || u.Host == "" || (u.Path != "" && u.Path != "/") {
		return nil, fmt.Errorf("the agent's address can't be %q: it is like %s", a.address, defaultAddress)
	}
	if group == "" {
		return nil, errors.New("the group has no name")
	}
	a.base = "http://" + u.Host + "/v1/groups/" + url.PathEscape(group)
	a.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return a, nil
}

// refusal is an answer that isn't what was asked for.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the agent answered %d: %s", r.code, r.text)
}

// misled reports whether it was wrong to ask that, rather than the agent that
// can't answer now.
func misled(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.code >= 400 && r.code < 500
}

func refused(code int, body []byte) error {
	var complaint struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &complaint) != nil || complaint.Error == "" {
		complaint.Error = fmt.Sprintf("%.100q", body)
	}
	return &refusal{code, complaint.Error}
}

// send asks the agent and reads its whole answer, so that the connection can be kept.
func (a *agent) send(ctx context.Context, method, path string, body []byte) (code int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	response, err := a.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(response.Body, answerMax))
	return response.StatusCode, answer, err
}

// leader asks who leads. What the agent says about the time that is left counts
// from before it was asked: nobody knows how long the answer took.
//
// With a session it renews that one's tenure. Without, the agent lets nobody
// succeed before the time is over that it says remains.
func (a *agent) leader(ctx context.Context, session string) (State, error) {
	path := "/leader"
	if session != "" {
		path += "?session=" + url.QueryEscape(session)
	}
	asked := time.Now()
	code, body, err := a.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return State{}, err
	}
	var answer struct {
		State

		RemainingMillis *int64 `json:"remainingMillis"`
	}
	// An agent that leads says 200 and one that doesn't says 503; either says in which group.
	if json.Unmarshal(body, &answer) != nil || answer.Group != a.group || answer.Leading != (code == http.StatusOK) {
		return State{}, refused(code, body)
	}
	if answer.Leading && answer.RemainingMillis != nil {
		answer.Until = asked.Add(time.Duration(*answer.RemainingMillis) * time.Millisecond)
	}
	return answer.State, nil
}

// stopped tells the agent that the application has stopped.
func (a *agent) stopped(ctx context.Context, session string, term uint64) error {
	body := fmt.Appendf(nil, `{"term":%d}`, term)
	code, text, err := a.send(ctx, http.MethodPost, "/session/"+url.PathEscape(session)+"/stopped", body)
	if err != nil {
		return err
	}
	if code != http.StatusNoContent {
		return refused(code, text)
	}
	return nil
}

// Leader asks who leads the group. It isn't an error that nobody does.
func Leader(ctx context.Context, group string, options ...Option) (State, error) {
	a, err := connect(group, kept, options)
	if err != nil {
		return State{}, err
	}
	state, err := a.leader(ctx, "")
	if err != nil {
		return State{}, fmt.Errorf("ask who leads %s: %w", group, err)
	}
	return state, nil
}
