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
	"time"

	"github.com/conclave-dev/conclave/internal/agent/group"
)

// courier carries requests to the agents' APIs.
type courier struct{ http *http.Client }

func newCourier() *courier {
	return &courier{&http.Client{Transport: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: time.Second}).DialContext,
		MaxIdleConnsPerHost: 2,
	}}}
}

func (c *courier) close() { c.http.CloseIdleConnections() }

// ask sends a request and reads the answer, whatever its status.
func (c *courier) ask(ctx context.Context, method, url string, body []byte) (status int, answer []byte, err error) {
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
	return "http://" + t.Agent(name).API + "/v1/groups/" + t.plan.Group.Name + "/" + path
}

// get reads an answer that is the same kind of object whatever its status.
func get[T any](ctx context.Context, t *Cluster, name, path string) (T, error) {
	var answer T
	status, body, err := t.client.ask(ctx, http.MethodGet, t.url(name, path), nil)
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

// Leader asks an agent who leads, only to know.
func (t *Cluster) Leader(ctx context.Context, name string) (group.Leader, error) {
	status, err := t.Status(ctx, name)
	return status.Leader, err
}

// Renew asks an agent whether its application, which holds a session, still leads.
func (t *Cluster) Renew(ctx context.Context, name, session string) (group.Leader, error) {
	return get[group.Leader](ctx, t, name, "leader?session="+session)
}

// Status asks an agent for all that it knows.
func (t *Cluster) Status(ctx context.Context, name string) (group.Status, error) {
	return get[group.Status](ctx, t, name, "status")
}

// ErrRefused is the answer of an agent that doesn't lead, or has nobody to hand
// the office to now.
var ErrRefused = errors.New("refused")

// StepDown asks the coordinator to hand the office over, to anyone if to is
// empty, and returns when that is done.
func (t *Cluster) StepDown(ctx context.Context, name, to string) (group.Leader, error) {
	wish := []byte("{}")
	if to != "" {
		wish = fmt.Appendf(nil, `{"to":%q}`, to)
	}
	status, body, err := t.client.ask(ctx, http.MethodPost, t.url(name, "step-down"), wish)
	if err != nil {
		return group.Leader{}, err
	}
	if status == http.StatusConflict {
		return group.Leader{}, fmt.Errorf("agent %s: %w: %s", name, ErrRefused, bytes.TrimSpace(body))
	}
	if status != http.StatusOK {
		return group.Leader{}, fmt.Errorf("agent %s didn't hand its office over: status %d: %s", name, status, bytes.TrimSpace(body))
	}
	var leader group.Leader
	return leader, json.Unmarshal(body, &leader)
}

// Metrics asks an agent for its metrics, in the text format of Prometheus.
func (t *Cluster) Metrics(ctx context.Context, name string) (string, error) {
	status, body, err := t.client.ask(ctx, http.MethodGet, "http://"+t.Agent(name).API+"/metrics", nil)
	if err != nil {
		return "", err
	}
	if status != http.StatusOK {
		return "", fmt.Errorf("agent %s, GET /metrics: status %d: %s", name, status, body)
	}
	return string(body), nil
}

// Seen is a state that an agent announced, and when that arrived here.
type Seen struct {
	At time.Time
	// ID of the event.
	ID     string
	Leader group.Leader
}

// Watch passes on what an agent announces, from its present state on, until the
// stream ends: with nil if ctx did that.
func (t *Cluster) Watch(ctx context.Context, name string, see func(Seen)) error {
	return t.stream(ctx, t.url(name, "watch"), func(e event) error {
		seen := Seen{At: e.at, ID: e.id}
		if err := json.Unmarshal(e.data, &seen.Leader); err != nil {
			return fmt.Errorf("agent %s, GET watch: %w: %s", name, err, e.data)
		}
		see(seen)
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

// Session holds a session open, and passes on what the agent says in it, until
// the stream ends: with nil if ctx did that.
func (t *Cluster) Session(ctx context.Context, name string, hear func(SessionEvent)) error {
	return t.stream(ctx, t.url(name, "session"), func(e event) error {
		heard := SessionEvent{Kind: e.kind}
		if err := json.Unmarshal(e.data, &heard); err != nil {
			return fmt.Errorf("agent %s, GET session: %w: %s", name, err, e.data)
		}
		hear(heard)
		return nil
	})
}

// Stopped tells an agent that the application has stopped in a term.
func (t *Cluster) Stopped(ctx context.Context, name, session string, term uint64) error {
	status, body, err := t.client.ask(ctx, http.MethodPost, t.url(name, "session/"+session+"/stopped"), fmt.Appendf(nil, `{"term":%d}`, term))
	if err != nil {
		return err
	}
	if status != http.StatusNoContent {
		return fmt.Errorf("agent %s doesn't take it that the application has stopped in term %d: status %d: %s", name, term, status, bytes.TrimSpace(body))
	}
	return nil
}

func (t *Cluster) stream(ctx context.Context, url string, take func(event) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := t.client.http.Do(request)
	if err == nil {
		defer response.Body.Close()
		err = readEvents(response, take)
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("GET %s: %w", url, err)
	}
	return nil
}
