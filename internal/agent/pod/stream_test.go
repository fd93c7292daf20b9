package pod

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// stream is the stream of reports of one agent.
type stream struct {
	t      *testing.T
	name   string
	events chan event
	close  func()
}

type event struct{ kind, data string }

// watch opens the stream as soon as possible.
func (g *testPod) watch() *stream {
	g.t.Helper()
	ctx, cancel := context.WithCancel(g.t.Context())
	s := &stream{t: g.t, name: g.name, events: make(chan event, 4096), close: cancel}
	var response *http.Response
	testwait.Until(g.t, g.name+" opens a stream", func() bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, g.operatorURL(control.ReportsPath), nil)
		must.Succeed(g.t, err)
		client := g.httpClient(g.operator)
		client.Timeout = 0
		response, err = client.Do(request) //nolint:bodyclose // The goroutine below closes it.
		return err == nil
	})
	if response.StatusCode != http.StatusOK {
		g.t.Fatalf("%s: got status %s", g.name, response.Status)
	}
	g.t.Cleanup(cancel)
	go func() {
		defer close(s.events)
		defer response.Body.Close()
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<20)
		var e event
		for lines.Scan() {
			if kind, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				e.kind = kind
			} else if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				e.data = data
				s.events <- e
			}
		}
	}()
	return s
}

// next returns the next event.
func (s *stream) next() event {
	s.t.Helper()
	select {
	case e, ok := <-s.events:
		if !ok {
			s.t.Fatalf("the stream of %s has ended", s.name)
		}
		return e
	case <-time.After(testwait.Limit):
		s.t.Fatalf("timed out waiting for an event of %s", s.name)
	}
	return event{}
}

// awaitLeft waits for the event that a group was left, and returns its data.
func (s *stream) awaitLeft() string {
	s.t.Helper()
	for {
		if e := s.next(); e.kind == control.EventLeft {
			return e.data
		}
	}
}

// await waits for a matching report.
func (s *stream) await(what string, wanted func(control.Report) bool) control.Report {
	s.t.Helper()
	var last string
	for start := time.Now(); time.Since(start) < testwait.Limit; {
		e := s.next()
		if e.kind != control.EventGroup {
			continue
		}
		last = e.data
		if r := decodeReport(s.t, e); wanted(r) {
			return r
		}
	}
	s.t.Fatalf("%s: timed out waiting until %s; last report: %s", s.name, what, last)
	return control.Report{}
}

func decodeReport(t *testing.T, e event) control.Report {
	t.Helper()
	var r control.Report
	decoder := json.NewDecoder(strings.NewReader(e.data))
	decoder.DisallowUnknownFields()
	must.Succeedf(t, decoder.Decode(&r), "%s", e.data)
	return r
}

func hasCoordinator(name string) func(control.Report) bool {
	return func(r control.Report) bool { return r.Coordinator == name }
}
