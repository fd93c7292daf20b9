// Package portforward forwards a local port to the local API of the agent in a pod, with the user's credentials.
package portforward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Port is a local port that is forwarded to a port of a pod.
type Port struct {
	// URL is the URL of the local port.
	URL string
	// Ended is closed when the connection to the pod has ended. It is nil if that never happens.
	Ended <-chan struct{}

	close     func()
	lastError *lastError
}

// At returns a Port for a server that can be reached without forwarding. Annotate adds the text to errors, unless it is
// empty.
func At(url, annotation string) *Port {
	return &Port{URL: url, close: func() {}, lastError: &lastError{text: annotation}}
}

// Close ends the forwarding.
func (p *Port) Close() { p.close() }

// Start forwards a local port to the local API of the agent in a pod, as kubectl port-forward does.
func Start(ctx context.Context, config *rest.Config, pod types.NamespacedName) (*Port, error) {
	return StartTo(ctx, config, pod, control.LocalPort)
}

// StartTo forwards a local port to this port of a pod.
func StartTo(ctx context.Context, config *rest.Config, pod types.NamespacedName, to int) (*Port, error) {
	port, err := start(ctx, config, pod, to)
	if err != nil && !errors.Is(err, context.Cause(ctx)) {
		err = fmt.Errorf("cannot forward a port to pod %s: %w", pod, command.SingleLine(err))
	}
	return port, err
}

func start(ctx context.Context, config *rest.Config, pod types.NamespacedName, to int) (*Port, error) {
	dialer, err := podDialer(config, pod)
	if err != nil {
		return nil, err
	}
	forwarding, cancel := context.WithCancel(ctx)
	port := &Port{close: cancel, lastError: &lastError{}}
	ready, ended, closed := make(chan struct{}), make(chan error, 1), make(chan struct{})
	port.Ended = closed
	// client-go only logs the errors of single connections.
	forwarding = klog.NewContext(forwarding, logr.New(port.lastError))
	forwarder, err := portforward.NewOnAddressesForStreamingWithContext(forwarding, dialer, []string{"127.0.0.1"},
		[]string{fmt.Sprintf("0:%d", to)}, ready, io.Discard, io.Discard)
	if err != nil {
		cancel()
		return nil, err
	}
	go func() {
		defer close(closed)
		ended <- forwarder.ForwardPorts()
	}()
	select {
	case <-ready:
	case err := <-ended:
		cancel()
		return nil, cmp.Or(err, ctx.Err())
	case <-ctx.Done():
		cancel()
		return nil, ctx.Err()
	}
	ports, err := forwarder.GetPorts()
	if err != nil || len(ports) != 1 {
		cancel()
		return nil, cmp.Or(err, errors.New("no local port is open"))
	}
	port.URL = fmt.Sprintf("http://127.0.0.1:%d", ports[0].Local)
	return port, nil
}

// podDialer dials by WebSocket, or by SPDY if the API server or a proxy doesn't support WebSocket.
func podDialer(config *rest.Config, pod types.NamespacedName) (httpstream.Dialer, error) {
	pods, err := corev1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	url := pods.RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).
		SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	overSPDY := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	overWebSocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, config)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialerForStreaming(overWebSocket, overSPDY, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

// lastError is a logr.LogSink that retains the last error.
type lastError struct {
	mu   sync.Mutex
	text string
}

func (l *lastError) set(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = text
}

func (l *lastError) Error(err error, message string, _ ...any) {
	l.set(cmp.Or(err, errors.New(message)).Error())
}
func (*lastError) Info(int, string, ...any)         {}
func (*lastError) Init(logr.RuntimeInfo)            {}
func (*lastError) Enabled(int) bool                 { return false }
func (l *lastError) WithName(string) logr.LogSink   { return l }
func (l *lastError) WithValues(...any) logr.LogSink { return l }

// Annotate adds the last error of a connection, if there is one, to an error of a request.
func (p *Port) Annotate(err error) error { return p.lastError.annotate(err) }

func (l *lastError) annotate(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text == "" {
		return command.SingleLine(err)
	}
	if strings.Contains(l.text, "connection refused") { // The rest is what each container runtime adds, such as its IDs.
		return command.SingleLine(fmt.Errorf("%w (nothing listens on this port of the pod)", err))
	}
	return command.SingleLine(fmt.Errorf("%w (%s)", err, l.text))
}
