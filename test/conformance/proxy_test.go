package conformance

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// proxy is a server between a client and its agent, which changes what they see.
type proxy struct {
	*httptest.Server

	agent http.Handler
	// hook handles a request in place of the agent if it returns true.
	hook atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool]
	// first is what each stream of a session begins with.
	first string
}

// behindProxy starts a driver that reaches its agent through a proxy.
func (l *lane) behindProxy(name string, p *proxy) error {
	target, err := url.Parse("http://" + l.cluster.Agent(name).API)
	if err != nil {
		return err
	}
	p.agent = &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error {
			if isSession(r.Request) {
				r.Body = struct {
					io.Reader
					io.Closer
				}{io.MultiReader(strings.NewReader(p.first), r.Body), r.Body}
			}
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {}, // The client has gone.
	}
	if p.Server == nil {
		p.Server = httptest.NewServer(p)
	}
	l.closers = append(l.closers, func() {
		p.CloseClientConnections()
		p.Close()
	})
	address := p.URL
	if listener, ok := p.Listener.(*net.UnixListener); ok {
		address = "unix://" + listener.Addr().String()
	}
	return errors.Join(l.launch(name, address), l.tell(name, "run"))
}

func isSession(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/session") }

func isRenewal(r *http.Request) bool {
	return r.URL.Query().Has("session") || r.URL.Path == "/v1/renewals"
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if hook := p.hook.Load(); hook == nil || !(*hook)(w, r) {
		p.agent.ServeHTTP(w, r)
	}
}

// handle sets the hook.
func (p *proxy) handle(hook func(w http.ResponseWriter, r *http.Request) bool) { p.hook.Store(&hook) }

var remainingMillis = regexp.MustCompile(`"remainingMillis":\d+`)

const slow = 300 * time.Millisecond

var proxyScenarios = []scenario{
	{name: "Unix socket", only: libraries, steps: func(l *lane) error {
		listener, err := net.Listen("unix", filepath.Join(l.folder, "s"))
		if err != nil {
			return err
		}
		p := &proxy{}
		p.Server = &httptest.Server{Listener: listener, Config: &http.Server{Handler: p}}
		p.Start()
		return errors.Join(l.behindProxy("c", p), l.awaitAll("c", "lead"))
	}},
	{name: "agent takes no part yet: 503", steps: func(l *lane) error {
		var refused atomic.Int32
		p := &proxy{}
		p.handle(func(w http.ResponseWriter, r *http.Request) bool {
			if !isSession(r) || refused.Add(1) > 3 {
				return false
			}
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"error":"the agent has no document of the group","reason":"NoDocument"}`)
			return true
		})
		return errors.Join(l.behindProxy("c", p),
			l.awaitLog("the agent has no document of the group"), l.awaitAll("c", "lead"))
	}},
	{name: "slow responses shorten the time", only: libraries, steps: func(l *lane) error {
		p := &proxy{}
		p.handle(func(w http.ResponseWriter, r *http.Request) bool {
			if isRenewal(r) {
				recorder := httptest.NewRecorder()
				p.agent.ServeHTTP(recorder, r)
				time.Sleep(slow) // It is what the test is about.
				w.WriteHeader(recorder.Code)
				_, _ = w.Write(recorder.Body.Bytes())
			}
			return isRenewal(r)
		})
		if err := errors.Join(l.behindProxy("c", p), l.awaitAll("c", "lead")); err != nil {
			return err
		}
		if _, left, err := l.acts("c"); err != nil || left > int((lease-slow).Milliseconds()) {
			return fmt.Errorf("%d ms are left, %w, want at most %s", left, err, lease-slow)
		}
		return nil
	}},
	{name: "leases become shorter: the function goes on", only: libraries, steps: func(l *lane) error {
		var renewals atomic.Int32
		p := &proxy{}
		p.handle(func(w http.ResponseWriter, r *http.Request) bool {
			if isRenewal(r) {
				recorder := httptest.NewRecorder()
				p.agent.ServeHTTP(recorder, r)
				body := recorder.Body.Bytes()
				if renewals.Add(1)%15 > 2 { // again and again
					body = remainingMillis.ReplaceAllFunc(body, func(key []byte) []byte {
						millis, _ := strconv.Atoi(string(key[len(`"remainingMillis":`):]))
						return fmt.Appendf(nil, `"remainingMillis":%d`, millis*2/5)
					})
				}
				w.WriteHeader(recorder.Code)
				_, _ = w.Write(body)
			}
			return isRenewal(r)
		})
		if err := errors.Join(l.behindProxy("c", p), l.awaitAll("c", "lead")); err != nil {
			return err
		}
		first, _, err := l.acts("c")
		for err == nil && renewals.Load() < 60 {
			time.Sleep(lease / 100)
			var token uint64
			if token, _, err = l.acts("c"); err == nil && token != first {
				err = fmt.Errorf("acts with token %d after %d renewals, want %d still", token, renewals.Load(), first)
			}
		}
		return err
	}},
	{name: "agent doesn't know the session any more", only: libraries, overlap: true, steps: func(l *lane) error {
		p := &proxy{}
		if err := errors.Join(l.behindProxy("c", p), l.awaitAll("c", "lead")); err != nil {
			return err
		}
		p.handle(func(w http.ResponseWriter, r *http.Request) bool {
			if isRenewal(r) {
				w.WriteHeader(http.StatusNotFound)
				_, _ = io.WriteString(w, `{"error":"no such session"}`)
			}
			return isRenewal(r)
		})
		return l.awaitAll("c", "told lost", "done")
	}},
	{name: "stream breaks, and the next one leads", only: libraries, steps: func(l *lane) error {
		p := &proxy{}
		if err := errors.Join(l.behindProxy("c", p), l.awaitAll("c", "lead")); err != nil {
			return err
		}
		p.CloseClientConnections()
		return l.awaitAll("c", "told agent-gone", "done", "lead")
	}},
	{name: "agent is newer: unknown events are ignored", only: libraries, steps: func(l *lane) error {
		return errors.Join(
			l.behindProxy("c", &proxy{first: "event: future\nretry: 1\ndata: {\"term\":1,\ndata: \"new\":[]}\n\n"}),
			l.awaitAll("c", "lead"))
	}},
	{name: "event isn't JSON: another session", only: libraries, steps: func(l *lane) error {
		return errors.Join(l.behindProxy("c", &proxy{first: "event: lead\ndata: {\n\n"}), l.awaitLog("invalid event"))
	}},
}
