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

// tunnel leads to the local API of the agent in a pod, with the rights of the user.
type tunnel struct {
	// address is the end of it on this machine.
	address string
	end     func()
	failure *failure
}

// dig makes a tunnel, as kubectl port-forward does.
func dig(ctx context.Context, config *rest.Config, pod types.NamespacedName) (*tunnel, error) {
	dialer, err := podDialer(config, pod)
	if err != nil {
		return nil, fmt.Errorf("forward a port to pod %s: %w", pod, oneLine(err))
	}
	ctx, end := context.WithCancel(ctx)
	t := &tunnel{end: end, failure: &failure{}}
	ready, ended := make(chan struct{}), make(chan error, 1)
	// What goes wrong with a connection, client-go only logs.
	ctx = klog.NewContext(ctx, logr.New(t.failure))
	forwarder, err := portforward.NewOnAddressesForStreamingWithContext(ctx, dialer, []string{"127.0.0.1"},
		[]string{fmt.Sprintf("0:%d", control.LocalPort)}, ready, io.Discard, io.Discard)
	if err != nil {
		end()
		return nil, fmt.Errorf("forward a port to pod %s: %w", pod, oneLine(err))
	}
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		end()
		return nil, fmt.Errorf("forward a port to pod %s: %w", pod, oneLine(cmp.Or(err, ctx.Err())))
	case <-ctx.Done():
		end()
		return nil, ctx.Err()
	}
	ports, err := forwarder.GetPorts()
	if err != nil || len(ports) != 1 {
		end()
		return nil, fmt.Errorf("forward a port to pod %s: %w", pod, cmp.Or(err, errors.New("no port is listened on")))
	}
	t.address = fmt.Sprintf("http://127.0.0.1:%d", ports[0].Local)
	return t, nil
}

// podDialer speaks WebSocket, and SPDY with API servers and proxies that don't.
func podDialer(config *rest.Config, pod types.NamespacedName) (httpstream.Dialer, error) {
	pods, err := corev1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	at := pods.RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	older := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, at)
	newer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(at, config)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialerForStreaming(newer, older, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

// failure is the last thing that went wrong in a tunnel. It is a logr.LogSink.
type failure struct {
	mu   sync.Mutex
	text string
}

func (f *failure) note(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text = text
}

func (f *failure) Error(err error, what string, _ ...any) {
	f.note(cmp.Or(err, errors.New(what)).Error())
}
func (*failure) Info(int, string, ...any)         {}
func (*failure) Init(logr.RuntimeInfo)            {}
func (*failure) Enabled(int) bool                 { return false }
func (f *failure) WithName(string) logr.LogSink   { return f }
func (f *failure) WithValues(...any) logr.LogSink { return f }

// or is err, with what went wrong in the tunnel if that is known.
func (f *failure) or(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.text == "" {
		return oneLine(err)
	}
	return oneLine(fmt.Errorf("%w (%s)", err, f.text))
}
