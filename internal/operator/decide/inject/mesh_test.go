package inject_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

var exclusionAnnotations = []string{
	"traffic.sidecar.istio.io/excludeInboundPorts", "traffic.sidecar.istio.io/excludeOutboundPorts",
	"config.linkerd.io/skip-inbound-ports", "config.linkerd.io/skip-outbound-ports",
}

// renderExclusions lists the ports of a pod that proxies don't intercept.
func renderExclusions(t *testing.T, patched []byte) string {
	t.Helper()
	metadata, ok := decode(t, patched)["metadata"].(map[string]any)
	annotations, is := metadata["annotations"].(map[string]any)
	if !ok || !is {
		t.Fatalf("got metadata %v, want annotations", metadata)
	}
	var text strings.Builder
	for _, key := range exclusionAnnotations {
		if value, found := annotations[key]; found {
			fmt.Fprintf(&text, "%s: %v\n", key, value)
		}
	}
	return text.String()
}

func TestInterceptionIsSeen(t *testing.T) {
	const istioIn, istioOut, linkerdIn, linkerdOut = 0, 1, 2, 3
	excluded := map[int]string{istioIn: "7373,7375", istioOut: "7373", linkerdIn: "80,7000-8000", linkerdOut: "4567, 7373"}
	for name, c := range map[string]struct {
		container   string
		annotations map[int]string
		ambient     string
		want        string
	}{
		"no mesh":                   {container: "app"},
		"Istio, ports excluded":     {container: "istio-proxy", annotations: excluded},
		"Linkerd, ports excluded":   {container: "linkerd-proxy", annotations: excluded},
		"Istio, nothing excluded":   {container: "istio-init", want: "the container istio-init"},
		"Linkerd, nothing excluded": {container: "linkerd-init", want: "the container linkerd-init"},
		"one port too few":          {container: "istio-proxy", annotations: map[int]string{istioIn: "7373", istioOut: "7373"}, want: "the container istio-proxy"},
		"only inbound ports":        {container: "linkerd-proxy", annotations: map[int]string{linkerdIn: "7373-7375"}, want: "the container linkerd-proxy"},
		"ambient mode":              {container: "app", annotations: excluded, ambient: "enabled", want: "Istio's ambient mode"},
		"ambient mode is off":       {container: "app", ambient: "disabled"},
	} {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{"ambient.istio.io/redirection": c.ambient}
			for key, value := range c.annotations {
				annotations[exclusionAnnotations[key]] = value
			}
			for _, init := range []bool{false, true} {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
				if containers := []corev1.Container{{Name: c.container}}; init {
					pod.Spec.InitContainers = containers
				} else {
					pod.Spec.Containers = containers
				}
				expect.Equalf(t, inject.Interception(pod), c.want, "init container %t", init)
			}
		})
	}
}
