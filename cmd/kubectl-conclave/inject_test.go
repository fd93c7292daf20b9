package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// offline is a cluster that nobody can ask.
var offline = []string{"--server", "http://127.0.0.1:1", "--agent-image", "conclave/agent:1"}

// inject runs the command on a manifest.
func runInject(t *testing.T, manifest string, args ...string) told {
	t.Helper()
	root := newRoot()
	var out, err bytes.Buffer
	root.SetArgs(append([]string{"inject", "-f", "-"}, args...))
	root.SetIn(strings.NewReader(manifest))
	root.SetOut(&out)
	root.SetErr(&err)
	status := run(t.Context(), root)
	return told{out: out.String(), err: err.String(), status: status}
}

func TestAManifestIsInjectedAndTheRestLeftAlone(t *testing.T) {
	path := filepath.Join("testdata", "inject", "ledger.yaml")
	args := append([]string{"inject", "-f", path, "--authorities", "testdata/inject/ca.pem"}, offline...)
	got := conclave(t, nil, args...)
	if got.status != 0 {
		t.Fatal(got.err)
	}
	golden(t, "inject/ledger.injected", got.out)
	golden(t, "inject/ledger.said", got.err)

	again := runInject(t, got.out, offline...)
	if again.out != got.out {
		t.Errorf("injecting once more changes it to\n%s", again.out)
	}
	if want := "StatefulSet bank/ledger: has the agent already\n"; !strings.HasPrefix(again.err, want) {
		t.Errorf("injecting once more says %q, want %q", again.err, want)
	}
}

const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"ledger-0","labels":{"conclave.dev/agent":"enabled"},` +
	`"annotations":{"conclave.dev/groups":"ledger"}},"spec":{"containers":[{"name":"application"}]}}`

func TestObjectsInJSONMayFollowEachOther(t *testing.T) {
	got := runInject(t, "\n"+`{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"<b>"}}`+"\n"+pod, append(offline, "--authorities", "testdata/inject/ca.pem")...)
	want := `{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"<b>"}}` + "\n---\napiVersion: v1\nkind: Pod\n"
	if got.status != 0 || !strings.HasPrefix(got.out, want) || got.err != "Pod ledger-0: got the agent\n" {
		t.Errorf("inject says %q and\n%s\nwant\n%s...", got.err, got.out, want)
	}
}

func TestWithoutAClusterTheAuthoritiesAreLeftOut(t *testing.T) {
	got := runInject(t, pod, offline...)
	want := "CONCLAVE_CA is left out: agents trust the authorities in their groups' ConfigMaps " +
		"(reach the API server: dial tcp 127.0.0.1:1: connect: connection refused)\nPod ledger-0: got the agent\n"
	if got.status != 0 || got.err != want || strings.Contains(got.out, "CONCLAVE_CA") {
		t.Errorf("inject says\n%swant\n%sand writes\n%s", got.err, want, got.out)
	}
}

func TestTheAuthoritiesOfTheClusterAreTaken(t *testing.T) {
	s := connect(t)
	args := []string{"--kubeconfig", s.kubeconfig, "-n", s.namespace, "--agent-image", "conclave/agent:1"}
	none := runInject(t, pod, args...)
	if want := "(there is no group yet in namespace " + s.namespace + " to ask)"; !strings.Contains(none.err, want) {
		t.Errorf("inject says %q, want %q", none.err, want)
	}
	for name, label := range map[string]map[string]string{"conclave-mail": {v1.LabelGroup: "mail"}, "other": nil} {
		text := map[string]string{"ca.pem": "of " + name}
		if err := s.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, Labels: label}, Data: text,
		}); err != nil {
			t.Fatal(err)
		}
	}
	got := runInject(t, pod, args...)
	if got.err != "Pod ledger-0: got the agent\n" || !strings.Contains(got.out, "value: of conclave-mail") {
		t.Errorf("inject says %q and writes\n%s", got.err, got.out)
	}
}

func TestNothingToInjectIsSaid(t *testing.T) {
	const manifest = "apiVersion: v1\nkind: ConfigMap   # as it is\n"
	got := runInject(t, manifest, offline...)
	want := "nothing asked for the agent: pods do with the label conclave.dev/agent: enabled\n"
	if got.status != 0 || got.out != manifest || got.err != want {
		t.Errorf("inject says %q and writes %q, want %q and %q", got.err, got.out, want, manifest)
	}
}

func TestABadManifestGetsOneLine(t *testing.T) {
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
		"no YAML": {"a: b\n---\na: [\n", nil, "-f: document 2: yaml: line 1: did not find expected node content"},
		"no JSON": {`{"a": 1} {"b": `, nil, "-f: object 2 is no JSON: unexpected EOF"},
		"no groups": {"a: b\n---\n" + noGroups, nil, "-f: document 2: Pod ledger-0: annotation conclave.dev/groups must name the groups " +
			"that the pod takes part in, such as ledger or ledger,mail"},
		"a key twice": {
			"kind: Pod\napiVersion: v1\nmetadata: {labels: {conclave.dev/agent: enabled}, annotations: {conclave.dev/groups: a}}\n" +
				"spec:\n  containers: [{name: a}]\n  nodeName: a\n  nodeName: b\n", nil,
			`-f: document 1: yaml: unmarshal errors: line 7: key "nodeName" already set in map`,
		},
		"no file of authorities": {pod, []string{"--authorities", "missing.pem"}, "--authorities: open missing.pem: no such file or directory"},
		"a key as an authority":  {pod, []string{"--authorities", key}, "--authorities must be a file with certificates in PEM: there is none in " + key},
	} {
		t.Run(name, func(t *testing.T) {
			got := runInject(t, test.manifest, append(test.args, offline...)...)
			if got.status != 2 || got.err != "error: "+test.want+"\n" || got.out != "" {
				t.Errorf("status %d, stderr is\n%swant\nerror: %s\nstdout is %q", got.status, got.err, test.want, got.out)
			}
		})
	}
}
