package live

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/chaos/nodefault"
)

// Attach connects standard input and output of a container until one of them or ctx ends.
type Attach func(ctx context.Context, pod types.NamespacedName, container string, in io.Reader, out io.Writer) error

// AttachBy returns an Attach by the API server, as kubectl attach does.
func AttachBy(config *rest.Config) Attach {
	return func(ctx context.Context, pod types.NamespacedName, container string, in io.Reader, out io.Writer) error {
		return stream(ctx, config, pod, "attach", &corev1.PodAttachOptions{Container: container, Stdin: true, Stdout: true}, in, out)
	}
}

// ExecBy returns an Exec by the API server, as kubectl exec does.
func ExecBy(config *rest.Config) Exec {
	return func(ctx context.Context, pod types.NamespacedName, container string, command []string, in io.Reader, out io.Writer) error {
		return stream(ctx, config, pod, "exec", &corev1.PodExecOptions{Container: container, Command: command, Stdin: true, Stdout: true}, in, out)
	}
}

// stream connects standard input and output of a process in a pod.
func stream(ctx context.Context, config *rest.Config, pod types.NamespacedName, subresource string, options runtime.Object, in io.Reader, out io.Writer) error {
	pods, err := corev1client.NewForConfig(config)
	if err != nil {
		return err
	}
	url := pods.RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource(subresource).
		VersionedParams(options, scheme.ParameterCodec).URL()
	overWebSocket, err := remotecommand.NewWebSocketExecutor(config, "GET", url.String())
	if err != nil {
		return err
	}
	overSPDY, err := remotecommand.NewSPDYExecutor(config, "POST", url)
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewFallbackExecutor(overWebSocket, overSPDY, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return err
	}
	// Otherwise, client-go logs when the connection ends.
	return executor.StreamWithContext(klog.NewContext(ctx, logr.Discard()), remotecommand.StreamOptions{Stdin: in, Stdout: out})
}

// helper is a pod that injects faults into its node.
type helper struct {
	pod *corev1.Pod
	// until is when the pod ends by itself.
	until time.Time
	// actions has the response to Check.
	actions map[string]string

	requests  *io.PipeWriter
	responses chan nodefault.Response
	// pending is the number of requests without a response.
	pending int
	// ended is closed when the connection has ended. Then failure may say why.
	ended      chan struct{}
	failure    error
	disconnect context.CancelFunc
}

// responseError is an error that a helper reports, or that its end shows. Another request wouldn't change it.
type responseError struct{ text string }

func (e *responseError) Error() string { return e.text }

// start creates a helper and connects to it.
func (h *helper) start(ctx context.Context, c client.Client, attach Attach, pod *corev1.Pod) error {
	h.disconnect = func() {}
	// An interruption doesn't cut this short: afterwards, it must be known whether there is a pod to delete.
	creating, cancel := context.WithTimeout(context.WithoutCancel(ctx), actionTimeout)
	defer cancel()
	if err := c.Create(creating, pod); err != nil {
		return err
	}
	h.pod = pod
	name := client.ObjectKeyFromObject(pod)
	for {
		now := &corev1.Pod{}
		if err := c.Get(ctx, name, now); err != nil {
			return err
		}
		running, err := isRunning(now)
		if err != nil {
			return err
		}
		if running {
			break
		}
		wait(ctx, pollInterval)
		if ctx.Err() != nil {
			return fmt.Errorf("pod %s doesn't start: %w", name, ctx.Err())
		}
	}
	h.connect(ctx, attach, name)
	return nil
}

// isRunning reports whether a helper runs, or an error if it never will.
func isRunning(pod *corev1.Pod) (bool, error) {
	name := client.ObjectKeyFromObject(pod)
	for i := range pod.Status.ContainerStatuses {
		state := pod.Status.ContainerStatuses[i].State
		switch {
		case state.Running != nil:
			return true, nil
		case state.Terminated != nil:
			return false, fmt.Errorf("pod %s with image %s has ended: %s %s", name, pod.Spec.Containers[0].Image, state.Terminated.Reason, state.Terminated.Message)
		case state.Waiting != nil && state.Waiting.Reason != "" && state.Waiting.Reason != "ContainerCreating":
			return false, fmt.Errorf("pod %s with image %s doesn't start: %s: %s", name, pod.Spec.Containers[0].Image, state.Waiting.Reason, state.Waiting.Message)
		}
	}
	if isFinished(pod) {
		return false, fmt.Errorf("pod %s has ended: %s %s", name, pod.Status.Reason, pod.Status.Message)
	}
	return false, nil
}

// connect connects to a helper until disconnect is called. The run is interrupted later than ctx ends.
func (h *helper) connect(ctx context.Context, attach Attach, name types.NamespacedName) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	in, requests := io.Pipe()
	out, responses := io.Pipe()
	h.requests, h.responses, h.ended = requests, make(chan nodefault.Response), make(chan struct{})
	// The Close of a pipe never fails.
	h.disconnect = func() { cancel(); _ = requests.Close(); _ = out.Close() }
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var r nodefault.Response
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				r.Error = "not a response: " + lines.Text()
			}
			select {
			case h.responses <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	go func() {
		defer close(h.ended)
		h.failure = attach(ctx, name, helperContainer, in, responses)
		_, _ = in.Close(), responses.Close()
	}()
}

// check asks which actions are possible on the node of a member.
func (h *helper) check(ctx context.Context, member *corev1.Pod) error {
	response, err := h.ask(ctx, &nodefault.Request{Action: nodefault.Check, Addresses: hostAddresses(member)})
	h.actions = response.Actions
	return err
}

// ask sends a request and waits for its response.
func (h *helper) ask(ctx context.Context, r *nodefault.Request) (response nodefault.Response, err error) {
	stop := context.AfterFunc(ctx, h.disconnect)
	defer stop()
	if err := h.send(r); err != nil {
		return response, err
	}
	for h.pending > 0 { // Earlier requests may still have a response.
		select {
		case response = <-h.responses:
			h.pending--
		case <-h.ended:
			return response, h.brokenError(h.failure)
		}
	}
	if response.Error != "" {
		return response, &responseError{response.Error}
	}
	return response, nil
}

// try sends a request that may prevent its own response. It returns the response if that arrives in time.
func (h *helper) try(ctx context.Context, r *nodefault.Request, limit time.Duration) error {
	stop := context.AfterFunc(ctx, h.disconnect)
	defer stop()
	if err := h.send(r); err != nil {
		return err
	}
	select {
	case response := <-h.responses:
		h.pending--
		if response.Error != "" {
			return &responseError{response.Error}
		}
	case <-h.ended:
		return h.brokenError(h.failure)
	case <-time.After(limit):
	}
	return nil
}

func (h *helper) send(r *nodefault.Request) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := h.requests.Write(append(text, '\n')); err != nil {
		return h.brokenError(err)
	}
	h.pending++
	return nil
}

func (h *helper) brokenError(cause error) error {
	if cause == nil {
		cause = errors.New("it has ended")
	}
	return fmt.Errorf("no response from pod %s: %w", client.ObjectKeyFromObject(h.pod), cause)
}
