package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/testing/apiserver"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestAgentsAcceptWhatTheSchemaAccepts tests that an agent accepts in its configuration file what the schema accepts,
// and rejects what the schema rejects. It does not include Services and selectors, which agents do not know.
func TestAgentsAcceptWhatTheSchemaAccepts(t *testing.T) {
	compared := 0
	for _, a := range readCases(t) {
		if a.Spec["members"] == nil || a.Spec["selector"] != nil || a.Spec["priorityFrom"] != nil || a.From != nil {
			continue
		}
		unknownToAgents := func(message string) bool {
			return strings.HasPrefix(message, "spec.service") || strings.HasPrefix(message, "status") ||
				strings.HasPrefix(message, "metadata") || strings.Contains(message, "witness")
		}
		refused := slices.ContainsFunc(a.Refused, func(message string) bool { return !unknownToAgents(message) })
		if !refused && len(a.Refused) > 0 && a.Spec["service"] == nil {
			continue
		}
		compared++
		t.Run(a.Case, func(t *testing.T) {
			file := agentFile(t, a.Spec)
			if _, err := config.Parse("agent.yaml", file); (err != nil) != refused {
				t.Errorf("got error %v of an agent, and %q of the API server", err, a.Refused)
			}
		})
	}
	expect.AtLeastf(t, compared, 40, "comparable cases")
}

// agentFile returns the configuration file of the first member.
func agentFile(t *testing.T, spec map[string]any) []byte {
	t.Helper()
	g := map[string]any{"name": "g"}
	for _, key := range []string{"algorithm", "safety", "preemption", "timing", "application"} {
		if spec[key] != nil {
			g[key] = spec[key]
		}
	}
	self, members := any("self"), []any{}
	list, ok := spec["members"].([]any)
	if !ok {
		t.Fatalf("got members of type %T", spec["members"])
	}
	for i, entry := range list {
		m, ok := entry.(map[string]any)
		if !ok {
			t.Fatalf("got a member of type %T", entry)
		}
		member := map[string]any{"address": fmt.Sprintf("127.0.0.1:%d", 7401+i)}
		for key, value := range m {
			member[map[string]string{"pod": "name", "priority": "priority"}[key]] = value
		}
		if i == 0 {
			self = m["pod"]
		}
		members = append(members, member)
	}
	g["members"] = members
	file, err := yaml.Marshal(map[string]any{
		"self": self, "listen": "127.0.0.1:7401", "tls": map[string]any{"insecure": true}, "groups": []any{g},
	})
	must.Succeed(t, err)
	return file
}

const bases = "../../config/crd/bases"

var apiServer = apiserver.New(bases)

func TestMain(m *testing.M) { apiServer.Main(m) }

// connect returns a client for the API server that is as strict as kubectl.
func connect(t *testing.T) client.Client { return connectWith(t, client.Options{}) }

func connectWith(t *testing.T, options client.Options) client.Client {
	t.Helper()
	c, err := client.New(apiServer.Config(t), options)
	must.Succeed(t, err)
	return client.WithFieldValidation(c, metav1.FieldValidationStrict)
}
