package chart

import (
	"fmt"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// Tools that deploy manifests know when a group is ready, and when waiting is no use: Flux and Helm by the conditions,
// and Argo CD by the script in the documents.
func TestToolsWaitForGroups(t *testing.T) {
	reference := must.ReadFile(t, filepath.Join(root, "docs", "reference.md"))
	script := regexp.MustCompile("(?s)```lua\n(.*?)```").FindSubmatch(reference)
	if script == nil {
		t.Fatal("docs/reference.md has no script in Lua")
	}
	condition := func(kind, is string) any {
		return map[string]any{"type": kind, "status": is, "reason": "Some", "message": kind + " is " + is}
	}
	for name, c := range map[string]struct {
		status       map[string]any
		kstatus      status.Status
		argo, reason string
	}{
		"no status yet": {nil, status.InProgressStatus, "Progressing", "The operator has not reported yet"},
		"an earlier status": {
			map[string]any{"observedGeneration": int64(1), "conditions": []any{condition("Ready", "True")}},
			status.InProgressStatus, "Progressing", "The operator has not reported yet",
		},
		"not ready": {
			map[string]any{"observedGeneration": int64(2), "conditions": []any{condition("Ready", "False")}},
			status.InProgressStatus, "Progressing", "Ready is False",
		},
		"ready": {
			map[string]any{"observedGeneration": int64(2), "conditions": []any{condition("Ready", "True")}},
			status.CurrentStatus, "Healthy", "Ready is True",
		},
		"stalled": {
			map[string]any{"observedGeneration": int64(2), "conditions": []any{condition("Ready", "False"), condition("Stalled",
				"True")}},
			status.FailedStatus, "Degraded", "Stalled is True",
		},
	} {
		t.Run(name, func(t *testing.T) {
			group := map[string]any{"apiVersion": "conclave.dev/v1", "kind": "ElectionGroup", "metadata": map[string]any{
				"name": "ledger", "generation": int64(2),
			}}
			if c.status != nil {
				group["status"] = c.status
			}
			result, err := status.Compute(&unstructured.Unstructured{Object: group})
			must.Succeed(t, err)
			if result.Status != c.kstatus && c.status != nil { // Without a status, kstatus considers each resource as current.
				t.Errorf("kstatus: got %s (%s), want %s", result.Status, result.Message, c.kstatus)
			}
			if health, message := runHealthCheck(t, string(script[1]), group); health != c.argo || message != c.reason {
				t.Errorf("Argo CD: got %s (%s), want %s (%s)", health, message, c.argo, c.reason)
			}
		})
	}
}

// runHealthCheck runs a health check of Argo CD.
func runHealthCheck(t *testing.T, script string, object map[string]any) (health, message string) {
	t.Helper()
	state := lua.NewState()
	defer state.Close()
	state.SetGlobal("obj", toLua(state, object))
	must.Succeed(t, state.DoString(script))
	result, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("got %s, want a table", state.Get(-1))
	}
	return result.RawGetString("status").String(), result.RawGetString("message").String()
}

func toLua(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, field := range value {
			table.RawSetString(key, toLua(state, field))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, item := range value {
			table.Append(toLua(state, item))
		}
		return table
	case int64:
		return lua.LNumber(value)
	default:
		return lua.LString(fmt.Sprint(value))
	}
}
