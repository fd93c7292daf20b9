package v1_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/agent/config"
)

// TestAgentsUnderstandWhatIsAccepted: what the schema accepts, an agent accepts
// in its own file; and what it refuses, an agent refuses, too. Of Services, and
// of what a selector finds, agents don't know.
func TestAgentsUnderstandWhatIsAccepted(t *testing.T) {
	compared := 0
	for _, a := range attempts(t) {
		if a.Spec["members"] == nil || a.Spec["selector"] != nil || a.Spec["priorityFrom"] != nil || a.From != nil {
			continue
		}
		foreign := func(complaint string) bool {
			return strings.HasPrefix(complaint, "spec.service") || strings.HasPrefix(complaint, "status") ||
				strings.HasPrefix(complaint, "metadata")
		}
		refused := slices.ContainsFunc(a.Refused, func(complaint string) bool { return !foreign(complaint) })
		if !refused && len(a.Refused) > 0 && a.Spec["service"] == nil {
			continue
		}
		compared++
		t.Run(a.Case, func(t *testing.T) {
			file := agentFile(t, a.Spec)
			if _, err := config.Parse("agent.yaml", file); (err != nil) != refused {
				t.Errorf("the API server says %q, and an agent: %v", a.Refused, err)
			}
		})
	}
	if compared < 40 {
		t.Errorf("only %d cases were compared", compared)
	}
}

// agentFile is a group as the first of its members has it in its file.
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
		t.Fatalf("members are %T", spec["members"])
	}
	for i, entry := range list {
		m, ok := entry.(map[string]any)
		if !ok {
			t.Fatalf("a member is %T", entry)
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
	if err != nil {
		t.Fatal(err)
	}
	return file
}
