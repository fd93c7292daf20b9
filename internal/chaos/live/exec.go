package live

import (
	"context"
	"io"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
)

// Exec runs a command in a container until its input or ctx ends.
type Exec func(
	ctx context.Context, pod types.NamespacedName, container string, command []string, in io.Reader, out io.Writer,
) error

// ExecBy returns an Exec by the API server, as kubectl exec does.
func ExecBy(config *rest.Config) Exec {
	return func(
		ctx context.Context, pod types.NamespacedName, container string, command []string, in io.Reader, out io.Writer,
	) error {
		pods, err := corev1client.NewForConfig(config)
		if err != nil {
			return err
		}
		options := &corev1.PodExecOptions{Container: container, Command: command, Stdin: true, Stdout: true}
		url := pods.RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
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
		ctx = klog.NewContext(ctx, logr.Discard())
		return executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out})
	}
}
