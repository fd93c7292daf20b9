package inject_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// valuesOf returns the values of an argument of a test.
func valuesOf(d *datadriven.TestData, key string) []string {
	at := slices.IndexFunc(d.CmdArgs, func(a datadriven.CmdArg) bool { return a.Key == key })
	if at < 0 {
		return nil
	}
	return d.CmdArgs[at].Vals
}

// settingsOf returns the settings of an operator with the options and the Secrets of a test.
func settingsOf(d *datadriven.TestData) inject.Settings {
	s := settings
	s.Options, s.PullSecrets = inject.Options{}, valuesOf(d, "secrets")
	for _, pair := range valuesOf(d, "options") {
		name, value, _ := strings.Cut(pair, "=")
		s.Options[name] = value
	}
	return s
}

type decodedPod struct {
	Metadata struct{ Annotations map[string]string }
	Spec     corev1.PodSpec
}

func podOf(t *testing.T, raw []byte) *decodedPod {
	t.Helper()
	p := &decodedPod{}
	must.Succeed(t, json.Unmarshal(raw, p))
	return p
}

func (p *decodedPod) pullSecrets() (names []string) {
	for _, reference := range p.Spec.ImagePullSecrets {
		names = append(names, reference.Name)
	}
	return names
}

// renderOptions prints the fields of the agent that the options are about.
func renderOptions(t *testing.T, pod []byte) string {
	t.Helper()
	agent := podOf(t, pod).Spec.InitContainers[0]
	fields := map[string]any{"resources": agent.Resources}
	if agent.SecurityContext.RunAsUser != nil {
		fields["user"] = []int64{*agent.SecurityContext.RunAsUser, *agent.SecurityContext.RunAsGroup}
	}
	for _, variable := range agent.Env {
		if variable.Name == "CONCLAVE_LOG_LEVEL" {
			fields["logLevel"] = variable.Value
		}
	}
	text, err := yaml.Marshal(fields)
	must.Succeed(t, err)
	return string(text)
}

func TestRequestsOfFlagsAreAtMostTheLimits(t *testing.T) {
	for arguments, want := range map[string]string{
		"agent-cpu-request=200m agent-cpu-limit=100m": "--agent-cpu-request must be at most " +
			"--agent-cpu-limit, got 200m and 100m",
		"agent-memory-request=1Gi agent-memory-limit=1000M": "--agent-memory-request must be at most " +
			"--agent-memory-limit, got 1Gi and 1000M",
		"agent-memory-request=1Gi": "",
		"agent-cpu-limit=5m":       "",
	} {
		o := inject.Options{}
		for argument := range strings.FieldsSeq(arguments) {
			name, value, _ := strings.Cut(argument, "=")
			for _, f := range o.Flags() {
				if f.Name == name {
					if err := f.Set(value); err != nil {
						t.Errorf("%s: %s", arguments, err)
					}
				}
			}
		}
		got := ""
		if err := o.Check(); err != nil {
			got = err.Error()
		}
		expect.Equalf(t, got, want, "%s", arguments)
	}
}

// describeAgent prints the metadata of a pod, and how its agent learns its groups.
func describeAgent(t *testing.T, pod []byte) string {
	t.Helper()
	var result struct {
		Metadata map[string]any
		Spec     struct {
			InitContainers []struct{ Env []map[string]any }
			Volumes        []struct {
				Projected struct{ Sources []map[string]any }
			}
		}
	}
	must.Succeed(t, json.Unmarshal(pod, &result))
	var text strings.Builder
	write := func(value any) {
		lines, err := yaml.Marshal(value)
		must.Succeed(t, err)
		text.Write(lines)
	}
	write(result.Metadata)
	for _, variable := range result.Spec.InitContainers[0].Env {
		if name, _ := variable["name"].(string); strings.HasPrefix(name, "CONCLAVE_GROUPS") {
			write(variable)
		}
	}
	write(result.Spec.Volumes[0].Projected.Sources[1:])
	return text.String()
}

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
		"one port too few": {
			container: "istio-proxy", annotations: map[int]string{istioIn: "7373", istioOut: "7373"},
			want: "the container istio-proxy",
		},
		"only inbound ports": {
			container: "linkerd-proxy", annotations: map[int]string{linkerdIn: "7373-7375"}, want: "the container linkerd-proxy",
		},
		"ambient mode":        {container: "app", annotations: excluded, ambient: "enabled", want: "Istio's ambient mode"},
		"ambient mode is off": {container: "app", ambient: "disabled"},
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
