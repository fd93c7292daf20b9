package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// forwardedPort is a local port that is forwarded, with the user's credentials, to
// the local API of the agent in a pod.
type forwardedPort struct {
	// url is the agent's API at the local port.
	url       string
	close     func()
	lastError *lastError
}

// forwardPort forwards a local port as kubectl port-forward does.
func forwardPort(ctx context.Context, config *rest.Config, pod types.NamespacedName) (*forwardedPort, error) {
	port, err := startForwarding(ctx, config, pod)
	if err != nil && !errors.Is(err, context.Cause(ctx)) {
		err = fmt.Errorf("cannot forward a port to pod %s: %w", pod, singleLine(err))
	}
	return port, err
}

func startForwarding(ctx context.Context, config *rest.Config, pod types.NamespacedName) (*forwardedPort, error) {
	dialer, err := podDialer(config, pod)
	if err != nil {
		return nil, err
	}
	forwarding, cancel := context.WithCancel(ctx)
	port := &forwardedPort{close: cancel, lastError: &lastError{}}
	ready, ended := make(chan struct{}), make(chan error, 1)
	// client-go only logs the errors of single connections.
	forwarding = klog.NewContext(forwarding, logr.New(port.lastError))
	forwarder, err := portforward.NewOnAddressesForStreamingWithContext(forwarding, dialer, []string{"127.0.0.1"},
		[]string{fmt.Sprintf("0:%d", control.LocalPort)}, ready, io.Discard, io.Discard)
	if err != nil {
		cancel()
		return nil, err
	}
	go func() { ended <- forwarder.ForwardPorts() }()
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
	port.url = fmt.Sprintf("http://127.0.0.1:%d", ports[0].Local)
	return port, nil
}

// podDialer dials by WebSocket, or by SPDY if the API server or a proxy doesn't
// support WebSocket.
func podDialer(config *rest.Config, pod types.NamespacedName) (httpstream.Dialer, error) {
	pods, err := corev1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	url := pods.RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
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

// annotate adds the last error, if there is one, to an error of a request.
func (l *lastError) annotate(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text == "" {
		return singleLine(err)
	}
	return singleLine(fmt.Errorf("%w (%s)", err, l.text))
}
