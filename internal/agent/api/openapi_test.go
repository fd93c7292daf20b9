package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/time/rate"
	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// contract is docs/openapi.yaml.
type contract struct {
	operations []string          // such as GET /healthz
	responses  map[string]string // the locations of responses such as GET /healthz 200
	fields     map[string]any
	schemas    *jsonschema.Compiler
}

// strict makes schemas reject fields and values that the document doesn't mention, although clients must accept them.
// It excepts schemas in allOf, which have other fields beside them.
var strict = strings.NewReplacer(
	"allOf: [{$ref", "allOf: [{$ref", "$ref", "unevaluatedProperties: false, $ref", "x-extensible-enum", "enum")

func readContract(t *testing.T) *contract {
	t.Helper()
	text := must.ReadFile(t, "../../../docs/openapi.yaml")
	var document any
	must.Succeed(t, yaml.Unmarshal([]byte(strict.Replace(string(text))), &document))
	var outline struct {
		Paths map[string]map[string]struct{ Responses map[string]map[string]any }
	}
	must.Succeed(t, yaml.Unmarshal(text, &outline))
	c := &contract{responses: map[string]string{}, fields: map[string]any{}, schemas: jsonschema.NewCompiler()}
	c.schemas.DefaultDraft(jsonschema.Draft2020)
	c.schemas.AssertFormat()
	for path, item := range outline.Paths {
		for method, operation := range item {
			name := strings.ToUpper(method) + " " + path
			c.operations = append(c.operations, name)
			for status, response := range operation.Responses {
				ref, _ := response["$ref"].(string)
				inline := fmt.Sprintf("#/paths/%s/%s/responses/%s", strings.ReplaceAll(path, "/", "~1"), method, status)
				c.responses[name+" "+status] = "openapi" + cmp.Or(ref, inline)
			}
		}
	}
	slices.Sort(c.operations)
	must.Succeed(t, c.schemas.AddResource("openapi", document))
	c.read(t, "openapi#", document)
	return c
}

// read collects the fields of all schemas, and checks the examples beside them.
func (c *contract) read(t *testing.T, at string, part any) {
	t.Helper()
	object, _ := part.(map[string]any)
	fields, _ := object["properties"].(map[string]any)
	maps.Copy(c.fields, fields)
	if example, ok := object["example"]; ok {
		schema, err := c.schemas.Compile(at + "/schema")
		must.Succeed(t, err)
		expect.Succeedf(t, schema.Validate(example), "example at %s", at)
	}
	events, _ := object["x-events"].(map[string]any)
	for _, event := range events { // Their schemas aren't references.
		schema, _ := event.(map[string]any)
		schema["unevaluatedProperties"] = false
	}
	for key, child := range object {
		c.read(t, at+"/"+strings.ReplaceAll(key, "/", "~1"), child)
	}
}

// check returns why a response to a request for an operation doesn't follow the contract.
func (c *contract) check(operation string, response *httptest.ResponseRecorder) error {
	at, ok := c.responses[fmt.Sprint(operation, " ", response.Code)]
	switch {
	case !ok:
		return fmt.Errorf("docs/openapi.yaml doesn't have %s %d", operation, response.Code)
	case response.Code == http.StatusNoContent:
		return nil
	}
	kind, _, _ := strings.Cut(response.Header().Get("Content-Type"), ";")
	at += "/content/" + strings.ReplaceAll(kind, "/", "~1") + "/"
	parts := [][]string{{"", "schema", response.Body.String()}}
	switch kind {
	case "text/plain":
		parts[0][2] = fmt.Sprintf("%q", response.Body)
	case "text/event-stream":
		at += "x-events/"
		parts = regexp.MustCompile(`(?m)^(?:event: (.*)\n)?data: (.*)$`).FindAllStringSubmatch(response.Body.String(), -1)
	}
	for _, part := range parts {
		schema, err := c.schemas.Compile(at + cmp.Or(part[1], "message"))
		if err != nil {
			return err
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(part[2]))
		if err := cmp.Or(err, schema.Validate(value)); err != nil {
			return err
		}
	}
	return nil
}

// TestAgentFollowsContract requests each response that the document has.
func TestAgentFollowsContract(t *testing.T) {
	c := readContract(t)
	synctest.Test(t, func(t *testing.T) {
		missing, fields := maps.Clone(c.responses), maps.Clone(c.fields)
		check := func(handler http.Handler, operation, group, body string, status int) {
			method, path, _ := strings.Cut(operation, " ")
			operation, _, _ = strings.Cut(operation, "?")
			target := strings.NewReplacer("{group}", group, "{session}", "s1").Replace(path)
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
			if status == http.StatusForbidden {
				r.Header.Set("Sec-Fetch-Site", "cross-site")
			}
			handler.ServeHTTP(w, r)
			if err := c.check(operation, w); err != nil || w.Code != status {
				t.Errorf("%s %s %.40s: got %d %s, want %d: %v", method, target, body, w.Code, w.Body, status, err)
			}
			delete(missing, fmt.Sprint(operation, " ", status))
			maps.DeleteFunc(fields,
				func(name string, _ any) bool { return strings.Contains(w.Body.String(), fmt.Sprintf("%q:", name)) })
		}
		metrics := http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "conclave_leading 1") })
		// The responses of full have all optional fields, and those of sparse have none.
		full, sparse := newFakeGroup(), newFakeGroup()
		full.full, full.leader.Leading = true, true
		full.changes, full.sessionEvents = make(chan group.Leader, 1), make(chan group.SessionEvent, 5)
		full.changes <- full.leader
		full.sessionEvents <- group.SessionEvent{Kind: group.Elect, Term: 6, WithinMillis: 1500}
		full.sessionEvents <- group.SessionEvent{Kind: group.Follow, Term: 6}
		full.sessionEvents <- group.SessionEvent{Kind: group.Lead, Term: 7, Token: 7340042}
		full.sessionEvents <- group.SessionEvent{Kind: group.Stop, Term: 7, Successor: "e"}
		full.sessionEvents <- group.SessionEvent{Kind: group.Lost, Term: 7}
		close(full.changes)
		close(full.sessionEvents)
		sparse.stuck, sparse.problems = true, []string{"ledger: no majority is connected"}
		sparse.stepDown = func(_ context.Context, to string) (group.Leader, error) {
			return sparse.leader, map[string]error{
				"self": group.ErrNotLeading, "odd": errors.New("odd"), "left": group.ErrClosed,
				"late": group.ErrHandOverTimeout,
			}[to]
		}
		const ledger = "/v1/groups/{group}"
		long := strings.Repeat(" ", bodyMax+1)
		for operation, bodies := range map[string]map[int]string{
			"GET " + ledger + "/leader":                     {503: ""},
			"GET " + ledger + "/leader?promiseMillis=0":     {400: ""},
			"GET " + ledger + "/status":                     {200: ""},
			"GET " + ledger + "/journal":                    {200: ""},
			"GET " + ledger + "/watch":                      {400: "{}"},
			"GET " + ledger + "/session":                    {400: "{}"},
			"POST " + ledger + "/session/{session}/stopped": {204: `{"term":7}`, 400: "{}", 409: `{"term":6}`, 413: long},
			"POST /v1/renewals": {
				200: `{"sessions":[{"group":"ledger","session":"s1"},{"group":"expected","session":"s1"}]}`, 400: `{"sessions":[]}`,
				413: strings.Repeat(" ", renewalsBodyMax+1),
			},
			"POST " + ledger + "/step-down": {
				200: "", 400: "[]", 409: `{"to":"self"}`, 413: long, 500: `{"to":"odd"}`,
				503: `{"to":"left"}`, 504: `{"to":"late"}`,
			},
			"GET /healthz": {503: ""},
			"GET /readyz":  {503: ""},
		} {
			for status, body := range bodies {
				check(New(sparse, metrics), operation, "ledger", body, status)
			}
		}
		var routed []string
		none, busy := rate.NewLimiter(0, 0), http.NewServeMux()
		limits := &lanes{
			sessions: lane{limiter: none}, probes: lane{limiter: none}, queries: lane{limiter: none},
			details: lane{limiter: none},
		}
		for path, handlers := range routes(sparse, metrics, limits) {
			busy.Handle(path, handlers)
			for method := range handlers {
				routed = append(routed, method+" "+path)
			}
		}
		if slices.Sort(routed); !slices.Equal(c.operations, routed) {
			t.Errorf("docs/openapi.yaml has %q, but the agent %q", c.operations, routed)
		}
		for _, operation := range c.operations {
			if strings.HasPrefix(operation, http.MethodGet) {
				check(New(full, metrics), operation+"?promiseMillis=1&verbose", "ledger", "", 200)
			}
			check(New(sparse, metrics), operation, "ledger", "", 403)
			check(busy, operation, "ledger", "", 429)
			if strings.Contains(operation, "{group}") {
				check(New(sparse, metrics), operation, "other", "", 404)
				check(New(sparse, metrics), operation, "expected", "", 503)
			}
		}
		if len(missing)+len(fields) > 0 {
			t.Errorf("docs/openapi.yaml has what no response has: %q %q", slices.Sorted(maps.Keys(missing)),
				slices.Sorted(maps.Keys(fields)))
		}
	})
}
