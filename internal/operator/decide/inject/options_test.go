package inject_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// settingsOf returns the settings of an operator with the options and the Secrets of a test.
func settingsOf(d *datadriven.TestData) inject.Settings {
	s := settings
	s.Options = inject.Options{}
	for _, argument := range d.CmdArgs {
		switch argument.Key {
		case "options":
			for _, pair := range argument.Vals {
				name, value, _ := strings.Cut(pair, "=")
				s.Options[name] = value
			}
		case "secrets":
			s.PullSecrets = argument.Vals
		}
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
		"agent-cpu-request=200m agent-cpu-limit=100m":       "--agent-cpu-request must be at most --agent-cpu-limit, got 200m and 100m",
		"agent-memory-request=1Gi agent-memory-limit=1000M": "--agent-memory-request must be at most --agent-memory-limit, got 1Gi and 1000M",
		"agent-memory-request=1Gi":                          "",
		"agent-cpu-limit=5m":                                "",
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
		err := o.Check()
		expect.Equalf(t, errorText(err), want, "%s", arguments)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
