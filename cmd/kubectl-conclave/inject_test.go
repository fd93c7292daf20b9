package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// offline are flags for a cluster that refuses connections.
var offline = []string{"--server", "http://127.0.0.1:1", "--agent-image", "conclave/agent:1"}

// runInject runs inject with a manifest on stdin.
func runInject(t *testing.T, manifest string, args ...string) result {
	t.Helper()
	return runWithStdin(t, manifest, append([]string{"inject", "-f", "-"}, args...)...)
}

func TestInjectLeavesOtherDocumentsUnchanged(t *testing.T) {
	path := filepath.Join("testdata", "inject", "ledger.yaml")
	args := append([]string{"inject", "-f", path, "--ca-bundle", "testdata/inject/ca.pem"}, offline...)
	got := runCommand(t, nil, args...)
	if got.status != 0 {
		t.Fatal(got.stderr)
	}
	checkGolden(t, "inject/ledger.injected.yaml", got.stdout)
	checkGolden(t, "inject/ledger.stderr", got.stderr)

	again := runInject(t, got.stdout, offline...)
	if again.stdout != got.stdout {
		t.Errorf("second run: got\n%s\nwant the manifest unchanged", again.stdout)
	}
	if want := "StatefulSet bank/ledger: unchanged, it has the agent already\n"; !strings.HasPrefix(again.stderr, want) {
		t.Errorf("second run: got %q, want %q", again.stderr, want)
	}
}

const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"ledger-0","labels":{"conclave.dev/agent":"enabled"},` +
	`"annotations":{"conclave.dev/groups":"ledger"}},"spec":{"containers":[{"name":"application"}]}}`

func TestInjectReadsConsecutiveJSONObjects(t *testing.T) {
	got := runInject(t, "\n"+`{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"<b>"}}`+"\n"+pod, append(offline, "--ca-bundle", "testdata/inject/ca.pem")...)
	want := `{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"<b>"}}` + "\n---\napiVersion: v1\nkind: Pod\n"
	if got.status != 0 || !strings.HasPrefix(got.stdout, want) || got.stderr != "Pod ledger-0: agent injected\n" {
		t.Errorf("got %q and\n%s\nwant\n%s...", got.stderr, got.stdout, want)
	}
}

func TestInjectWithoutClusterOmitsTheCABundle(t *testing.T) {
	got := runInject(t, pod, offline...)
	want := "CONCLAVE_CA is not set; agents trust the CA bundle in their groups' ConfigMaps " +
		"(cannot reach the API server: dial tcp 127.0.0.1:1: connect: connection refused)\nPod ledger-0: agent injected\n"
	if got.status != 0 || got.stderr != want || strings.Contains(got.stdout, "CONCLAVE_CA") {
		t.Errorf("got\n%swant\n%sstdout\n%s", got.stderr, want, got.stdout)
	}
}

func TestInjectReadsTheCABundleOfTheCluster(t *testing.T) {
	e := newEnv(t)
	args := []string{"--kubeconfig", e.Kubeconfig, "-n", e.Namespace, "--agent-image", "conclave/agent:1"}
	none := runInject(t, pod, args...)
	if want := "(no group found in namespace " + e.Namespace + ")"; !strings.Contains(none.stderr, want) {
		t.Errorf("got %q, want %q", none.stderr, want)
	}
	for name, label := range map[string]map[string]string{"conclave-mail": {v1.LabelGroup: "mail"}, "other": nil} {
		text := map[string]string{"ca.pem": "of " + name}
		if err := e.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name, Labels: label}, Data: text,
		}); err != nil {
			t.Fatal(err)
		}
	}
	got := runInject(t, pod, args...)
	if got.stderr != "Pod ledger-0: agent injected\n" || !strings.Contains(got.stdout, "value: of conclave-mail") {
		t.Errorf("got %q and\n%s\nwant the CA bundle of conclave-mail", got.stderr, got.stdout)
	}
}

func TestInjectReportsThatNoPodOptsIn(t *testing.T) {
	const manifest = "apiVersion: v1\nkind: ConfigMap   # as it is\n"
	got := runInject(t, manifest, offline...)
	want := "no agent injected: no pod has the label conclave.dev/agent: enabled\n"
	if got.status != 0 || got.stdout != manifest || got.stderr != want {
		t.Errorf("got %q and %q, want %q and %q", got.stderr, got.stdout, want, manifest)
	}
}

// TestInjectUsesTheOptionsOfTheOperator, except for those that a flag or the pod sets.
func TestInjectUsesTheOptionsOfTheOperator(t *testing.T) {
	e := newEnv(t)
	e.CreateOperator(t, "--leader-elect", "--agent-uid=1000", "--agent-cpu-limit=200m", "--agent-memory-limit", "96Mi")
	limited := strings.Replace(pod, `"conclave.dev/groups"`, `"conclave.dev/agent-cpu-limit":"300m","conclave.dev/groups"`, 1)
	got := runInject(t, limited, "--kubeconfig", e.Kubeconfig, "-n", e.Namespace, "--agent-uid", "2000")
	for _, want := range []string{"cpu: 300m\n", "memory: 96Mi\n", "runAsUser: 2000\n", "image: example.com/agent:2\n"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("got %q and\n%s\nwant it to contain %q", got.stderr, got.stdout, want)
		}
	}
}

func TestInvalidManifestIsOneLine(t *testing.T) {
	noGroups := strings.Replace(pod, "conclave.dev/groups", "other", 1)
	key := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(key, []byte("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		manifest string
		args     []string
		want     string
	}{
		"invalid YAML": {"a: b\n---\na: [\n", nil, "document 2 of stdin: yaml: line 1: did not find expected node content"},
		"invalid JSON": {`{"a": 1} {"b": `, nil, "object 2 of stdin is not valid JSON: unexpected EOF"},
		"no groups": {"a: b\n---\n" + noGroups, nil, "document 2 of stdin: Pod ledger-0: annotation conclave.dev/groups must name the groups " +
			"that the pod takes part in, such as ledger or ledger,mail"},
		"duplicate key": {
			"kind: Pod\napiVersion: v1\nmetadata: {labels: {conclave.dev/agent: enabled}, annotations: {conclave.dev/groups: a}}\n" +
				"spec:\n  containers: [{name: a}]\n  nodeName: a\n  nodeName: b\n", nil,
			`document 1 of stdin: yaml: unmarshal errors: line 7: key "nodeName" already set in map`,
		},
		"missing CA bundle":        {pod, []string{"--ca-bundle", "missing.pem"}, "--ca-bundle: open missing.pem: no such file or directory"},
		"private key as CA bundle": {pod, []string{"--ca-bundle", key}, "--ca-bundle must be a file with certificates in PEM: " + key + " contains none"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runInject(t, test.manifest, append(test.args, offline...)...)
			if got.status != 2 || got.stderr != "error: "+test.want+"\n" || got.stdout != "" {
				t.Errorf("got status %d, stderr\n%swant 2,\nerror: %s\nstdout: got %q, want none", got.status, got.stderr, test.want, got.stdout)
			}
		})
	}
}
