package agentcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/journal"
)

// apiClient sends requests to the agents' local APIs.
type apiClient struct{ http *http.Client }

func newAPIClient() *apiClient {
	return &apiClient{&http.Client{Transport: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: waitMax}).DialContext,
		MaxIdleConnsPerHost: 2,
	}}}
}

func (c *apiClient) close() { c.http.CloseIdleConnections() }

// do sends a request and reads the response, whatever its status.
func (c *apiClient) do(ctx context.Context, method, url string, body []byte) (status int, answer []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	if err != nil {
		return 0, nil, fmt.Errorf("%s %s: %w", method, url, err)
	}
	return response.StatusCode, answer, nil
}

func (t *Cluster) url(name, path string) string {
	return "http://" + t.Agent(name).API + "/v1/groups/" + t.options.Group.Name + "/" + path
}

// get decodes a response. Status 503 has the same kind of body as status 200.
func get[T any](ctx context.Context, t *Cluster, name, path string) (T, error) {
	var answer T
	status, body, err := t.client.do(ctx, http.MethodGet, t.url(name, path), nil)
	if err != nil {
		return answer, err
	}
	if status != http.StatusOK && status != http.StatusServiceUnavailable {
		return answer, fmt.Errorf("agent %s, GET %s: status %d: %s", name, path, status, body)
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return answer, fmt.Errorf("agent %s, GET %s: %w: %s", name, path, err, body)
	}
	return answer, nil
}

// Leader queries the coordinator that an agent knows, without any lease guarantee.
func (t *Cluster) Leader(ctx context.Context, name string) (group.Leader, error) {
	status, err := t.Status(ctx, name)
	return status.Leader, err
}

// Renew renews the lease of the application that holds this session.
func (t *Cluster) Renew(ctx context.Context, name, session string) (group.Leader, error) {
	return get[group.Leader](ctx, t, name, "leader?session="+session)
}

// Status queries the complete status of an agent.
func (t *Cluster) Status(ctx context.Context, name string) (group.Status, error) {
	return get[group.Status](ctx, t, name, "status")
}

// Journal queries an agent's part of recent elections.
func (t *Cluster) Journal(ctx context.Context, name string) (journal.Journal, error) {
	return get[journal.Journal](ctx, t, name, "journal")
}

// ErrRefused is the answer of an agent that doesn't lead, or has no successor to hand the office to.
var ErrRefused = errors.New("refused")

// StepDown asks the coordinator to hand over the office and returns when that is done.
// If to is empty, the coordinator chooses the successor.
func (t *Cluster) StepDown(ctx context.Context, name, to string) (group.Leader, error) {
	request := []byte("{}")
	if to != "" {
		request = fmt.Appendf(nil, `{"to":%q}`, to)
	}
	status, body, err := t.client.do(ctx, http.MethodPost, t.url(name, "step-down"), request)
	if err != nil {
		return group.Leader{}, err
	}
	if status == http.StatusConflict {
		return group.Leader{}, fmt.Errorf("agent %s: %w: %s", name, ErrRefused, bytes.TrimSpace(body))
	}
	if status != http.StatusOK {
		return group.Leader{},
			fmt.Errorf("agent %s didn't hand over the office: status %d: %s", name, status, bytes.TrimSpace(body))
	}
	var leader group.Leader
	return leader, json.Unmarshal(body, &leader)
}

// Metrics queries the metrics of an agent, in the Prometheus text format.
func (t *Cluster) Metrics(ctx context.Context, name string) (string, error) {
	status, body, err := t.client.do(ctx, http.MethodGet, "http://"+t.Agent(name).API+"/metrics", nil)
	if err != nil {
		return "", err
	}
	if status != http.StatusOK {
		return "", fmt.Errorf("agent %s, GET /metrics: status %d: %s", name, status, body)
	}
	return string(body), nil
}

// Metric queries the value of a metric of an agent, added up over all labels.
func (t *Cluster) Metric(ctx context.Context, name, metric string) (sum float64, err error) {
	text, err := t.Metrics(ctx, name)
	if err != nil {
		return 0, err
	}
	if !strings.Contains(text, "# TYPE "+metric+" ") {
		return 0, fmt.Errorf("agent %s has no metric %s", name, metric)
	}
	for line := range strings.Lines(text) {
		sample, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if family, _, _ := strings.Cut(sample, "{"); family != metric {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("agent %s, %s: %w", name, line, err)
		}
		sum += number
	}
	return sum, nil
}

// Ready queries whether an agent is ready, with the reasons why it isn't, and why its process may not be elected.
func (t *Cluster) Ready(ctx context.Context, name string) (ready bool, reasons string, err error) {
	status, body, err := t.client.do(ctx, http.MethodGet, "http://"+t.Agent(name).API+"/readyz?verbose", nil)
	return status == http.StatusOK, string(body), err
}

// Observation is an event of an agent's watch stream with the time of its arrival.
type Observation struct {
	At time.Time
	// ID is the ID of the event.
	ID     string
	Leader group.Leader
}

// Watch calls observe for each event of an agent's watch stream, starting with the
// present state, until the stream ends. It returns nil if ctx ended it.
func (t *Cluster) Watch(ctx context.Context, name string, observe func(Observation)) error {
	return t.stream(ctx, t.url(name, "watch"), func(e event) error {
		observation := Observation{At: e.at, ID: e.id}
		if err := json.Unmarshal(e.data, &observation.Leader); err != nil {
			return fmt.Errorf("agent %s, GET watch: %w: %s", name, err, e.data)
		}
		observe(observation)
		return nil
	})
}

// SessionEvent is an event of a session: session, lead, stop or lost.
type SessionEvent struct {
	Kind      string `json:"-"`
	Session   string `json:"session"`
	Term      uint64 `json:"term"`
	Token     uint64 `json:"token"`
	Successor string `json:"successor"`
}

// Session holds a session open and calls handle for each of its events, until the
// stream ends. It returns nil if ctx ended it.
func (t *Cluster) Session(ctx context.Context, name string, handle func(SessionEvent)) error {
	return t.stream(ctx, t.url(name, "session"), func(e event) error {
		received := SessionEvent{Kind: e.kind}
		if err := json.Unmarshal(e.data, &received); err != nil {
			return fmt.Errorf("agent %s, GET session: %w: %s", name, err, e.data)
		}
		handle(received)
		return nil
	})
}

// Stopped confirms to an agent that its application has stopped in a term.
func (t *Cluster) Stopped(ctx context.Context, name, session string, term uint64) error {
	status, body, err := t.client.do(ctx, http.MethodPost, t.url(name, "session/"+session+"/stopped"),
		fmt.Appendf(nil, `{"term":%d}`, term))
	if err != nil {
		return err
	}
	if status != http.StatusNoContent {
		return fmt.Errorf("agent %s refused the confirmation that the application stopped in term %d: status %d: %s", name,
			term, status, bytes.TrimSpace(body))
	}
	return nil
}

func (t *Cluster) stream(ctx context.Context, url string, handle func(event) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := t.client.http.Do(request)
	if err == nil {
		defer response.Body.Close()
		err = readEvents(response, handle)
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("GET %s: %w", url, err)
	}
	return nil
}
