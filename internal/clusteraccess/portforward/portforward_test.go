package portforward

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// fakePortForwarder is an API server that forwards ports of one pod by SPDY only, as those before Kubernetes 1.30 do.
type fakePortForwarder struct {
	// agent is the address of the pod's agent. If it is empty, the pod refuses connections.
	agent string
}

func (f *fakePortForwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/api/v1/namespaces/bank/pods/ledger-2/portforward" {
		http.NotFound(w, r)
		return
	}
	if r.Header.Get("Upgrade") == "websocket" {
		http.Error(w, "unsupported protocol", http.StatusBadRequest)
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

func (f *fakePortForwarder) connect(data, failure httpstream.Stream) {
	defer failure.Close()
	defer data.Close()
	if port := data.Headers().Get("port"); port != "7374" {
		_, _ = io.WriteString(failure, "port "+port+" is closed")
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

func TestForwardedPortReachesTheAgent(t *testing.T) {
	agent := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "agent") }))
	defer agent.Close()
	api := httptest.NewServer(&fakePortForwarder{agent: agent.Listener.Addr().String()})
	defer api.Close()
	port, err := Start(t.Context(), &rest.Config{Host: api.URL}, types.NamespacedName{Namespace: "bank", Name: "ledger-2"})
	must.Succeed(t, err)
	defer port.Close()
	response, err := http.Get(port.URL)
	if err != nil {
		t.Fatal(port.Annotate(err))
	}
	defer response.Body.Close()
	if answer, err := io.ReadAll(response.Body); err != nil || string(answer) != "agent" {
		t.Errorf("got response %q, %v, want agent", answer, err)
	}
}

func TestForwardedPortReportsUnreachableAgents(t *testing.T) {
	api := httptest.NewServer(&fakePortForwarder{})
	defer api.Close()
	config := &rest.Config{Host: api.URL}
	_, err := Start(t.Context(), config, types.NamespacedName{Namespace: "bank", Name: "ledger-3"})
	if err == nil || !strings.HasPrefix(err.Error(), "cannot forward a port to pod bank/ledger-3: ") ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("a missing pod: got %v, want one line that the port cannot be forwarded", err)
	}

	port, err := Start(t.Context(), config, types.NamespacedName{Namespace: "bank", Name: "ledger-2"})
	must.Succeed(t, err)
	defer port.Close()
	response, err := http.Get(port.URL)
	if err == nil {
		response.Body.Close()
		t.Fatal("got a response of an agent that does not listen")
	}
	// The forwarder closes the connection, or resets it if a request is unread, and may log the reason afterwards.
	const want = " (nothing listens on this port of the pod)"
	cause := errors.Unwrap(err)
	if !testwait.Within(10*time.Second, time.Millisecond,
		func() bool { return strings.HasSuffix(port.Annotate(cause).Error(), want) }) {
		t.Errorf("got %v, want an error with%s", port.Annotate(cause), want)
	}
}

// TestAnnotate: a container runtime describes in hundreds of characters that an agent isn't running.
func TestAnnotate(t *testing.T) {
	const refused = `error forwarding port 7374 to pod c3c4f, uid : failed to execute portforward in network namespace ` +
		`"/var/run/netns/cni-4f": failed to connect to ` +
		`localhost:7374 inside namespace "c3c4f", IPv4: dial tcp4 127.0.0.1:7374: connect: connection refused IPv6 dial ` +
		`tcp6: address localhost: no suitable address found`
	for text, want := range map[string]string{
		"":              "EOF",
		refused:         "EOF (nothing listens on this port of the pod)",
		"the pod ended": "EOF (the pod ended)",
	} {
		expect.Equalf(t, At("", text).Annotate(io.EOF).Error(), want, "%q", text)
	}
}
