package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// forwards is an API server that forwards the ports of one pod, by SPDY alone,
// as those before Kubernetes 1.30 do.
type forwards struct {
	// agent is where the pod's agent listens. Without it, connections to it are refused.
	agent string
}

func (f *forwards) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/api/v1/namespaces/bank/pods/ledger-2/portforward" {
		http.NotFound(w, r)
		return
	}
	if r.Header.Get("Upgrade") == "websocket" {
		http.Error(w, "what is that?", http.StatusBadRequest)
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return
	}
	var mu sync.Mutex
	failures := map[string]httpstream.Stream{}
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		mu.Lock()
		defer mu.Unlock()
		id := s.Headers().Get("requestID")
		if s.Headers().Get("streamType") == "error" {
			failures[id] = s
			return nil
		}
		go f.connect(s, failures[id])
		return nil
	})
	if conn != nil {
		<-conn.CloseChan()
	}
}

func (f *forwards) connect(data, failure httpstream.Stream) {
	defer failure.Close()
	defer data.Close()
	if port := data.Headers().Get("port"); port != "7374" {
		_, _ = io.WriteString(failure, "port "+port+" is not the agent's")
		return
	}
	if f.agent == "" {
		_, _ = io.WriteString(failure, "connect to port 7374 in the pod: connection refused")
		return
	}
	conn, err := net.Dial("tcp", f.agent)
	if err != nil {
		_, _ = io.WriteString(failure, err.Error())
		return
	}
	defer conn.Close()
	go func() { _, _ = io.Copy(conn, data) }()
	_, _ = io.Copy(data, conn)
}

func TestATunnelLeadsToTheAgentInThePod(t *testing.T) {
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "it is me") }))
	defer agent.Close()
	api := httptest.NewServer(&forwards{agent: agent.Listener.Addr().String()})
	defer api.Close()
	tunnel, err := dig(t.Context(), &rest.Config{Host: api.URL}, types.NamespacedName{Namespace: "bank", Name: "ledger-2"})
	if err != nil {
		t.Fatal(err)
	}
	defer tunnel.end()
	response, err := http.Get(tunnel.address)
	if err != nil {
		t.Fatal(tunnel.failure.or(err))
	}
	defer response.Body.Close()
	if answer, err := io.ReadAll(response.Body); err != nil || string(answer) != "it is me" {
		t.Errorf("through the tunnel comes %q, %v", answer, err)
	}
}

func TestATunnelToNowhereSaysSo(t *testing.T) {
	api := httptest.NewServer(&forwards{})
	defer api.Close()
	config := &rest.Config{Host: api.URL}
	_, err := dig(t.Context(), config, types.NamespacedName{Namespace: "bank", Name: "ledger-3"})
	if err == nil || !strings.HasPrefix(err.Error(), "forward a port to pod bank/ledger-3: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("a tunnel to a pod that isn't there: %v, want one line about it", err)
	}

	tunnel, err := dig(t.Context(), config, types.NamespacedName{Namespace: "bank", Name: "ledger-2"})
	if err != nil {
		t.Fatal(err)
	}
	defer tunnel.end()
	w := witness{group: "ledger", address: tunnel.address}
	_, err = w.ask(t.Context(), "ledger-2", "")
	if err == nil {
		t.Fatal("an agent that isn't there answered")
	}
	err = tunnel.failure.or(err)
	if want := "the agent in pod ledger-2 doesn't answer: EOF (connect to port 7374 in the pod: connection refused)"; err.Error() != want {
		t.Errorf("an agent that isn't there: %v, want %s", err, want)
	}
}
