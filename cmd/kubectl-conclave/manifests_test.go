package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// writeFiles writes files below a new folder. The content of each is a ConfigMap with
// a comment that has its path.
func writeFiles(t *testing.T, paths ...string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for _, path := range paths {
		file := filepath.Join(folder, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(configMap(path)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func configMap(comment string) string {
	return "apiVersion: v1\nkind: ConfigMap   # " + comment + "\n"
}

func TestInjectReadsWhatKubectlReads(t *testing.T) {
	folder := writeFiles(t, "b.yaml", "a.json", "c.yml", "notes.txt", "more/d.yaml")
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(configMap(r.URL.Path)))
	}))
	defer server.Close()
	file := func(path string) string { return filepath.Join(folder, path) }
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"a file of any extension": {[]string{"-f", file("notes.txt")}, []string{"notes.txt"}},
		"a folder":                {[]string{"-f", folder}, []string{"a.json", "b.yaml", "c.yml"}},
		"a folder with subfolders": {
			[]string{"-R", "-f", folder},
			[]string{"a.json", "b.yaml", "c.yml", "more/d.yaml"},
		},
		"several files":      {[]string{"-f", file("c.yml"), "-f", file("b.yaml") + "," + file("a.json")}, []string{"c.yml", "b.yaml", "a.json"}},
		"a pattern":          {[]string{"-f", file("*.y*ml")}, []string{"b.yaml", "c.yml"}},
		"a URL":              {[]string{"-f", server.URL + "/e.yaml"}, []string{"/e.yaml"}},
		"stdin and a folder": {[]string{"-f", "-", "-f", file("more")}, []string{"stdin", "more/d.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			var documents []string
			for _, comment := range test.want {
				documents = append(documents, configMap(comment))
			}
			want := strings.Join(documents, "---\n")
			got := runWithStdin(t, configMap("stdin"), append(append([]string{"inject"}, test.args...), offline...)...)
			if got.status != 0 || got.stdout != want {
				t.Errorf("got exit status %d, %s\n%s\nwant 0\n%s", got.status, got.stderr, got.stdout, want)
			}
		})
	}
}

func TestInjectNamesTheManifestThatIsInvalid(t *testing.T) {
	folder := writeFiles(t, "a.yaml", "sub/sub/b.yaml", "notes/c.txt")
	invalid := filepath.Join(folder, "invalid.yaml")
	if err := os.WriteFile(invalid, []byte("a: b\n---\na: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	noManifests := filepath.Join(folder, "notes")
	for name, test := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"content":     {[]string{"-f", folder}, 2, "document 2 of " + invalid + ": yaml: line 1: did not find expected node content"},
		"stdin twice": {[]string{"-f", "-", "-f", "-"}, 2, "-f: - (stdin) must be given only once"},
		"folder without manifests": {
			[]string{"-f", noManifests},
			2,
			"-f: the folder " + noManifests + " must contain files with the extension .json, .yaml, .yml; for its subfolders, add -R",
		},
		"pattern":         {[]string{"-f", "[", "-R"}, 2, `-f: invalid pattern "[": syntax error in pattern`},
		"URL":             {[]string{"-f", server.URL + "/a.yaml"}, 1, "cannot read " + server.URL + "/a.yaml: the server responded 404 Not Found"},
		"value of a flag": {[]string{"-f", folder, "--recursive=maybe"}, 2, `--recursive must be true or false, got "maybe"`},
	} {
		t.Run(name, func(t *testing.T) {
			got := runCommand(t, nil, append(append([]string{"inject"}, test.args...), offline...)...)
			if got.status != test.status || got.stderr != "error: "+test.want+"\n" || got.stdout != "" {
				t.Errorf("got exit status %d, stderr\n%swant %d,\nerror: %s\nstdout: got %q, want none", got.status, got.stderr, test.status, test.want, got.stdout)
			}
		})
	}
}

// The former name of --ca-bundle still works.
func TestInjectAcceptsTheFormerCABundleFlag(t *testing.T) {
	got := runInject(t, pod, append([]string{"--authorities", "testdata/inject/ca.pem"}, offline...)...)
	if got.status != 0 || !strings.Contains(got.stdout, "CONCLAVE_CA") {
		t.Errorf("got %+v, want the CA bundle", got)
	}
}

func TestInjectNeedsNeitherClusterNorKubeconfig(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	got := runInject(t, pod, "--agent-image", "conclave/agent:1")
	want := "CONCLAVE_CA is not set; agents trust the CA bundle in their groups' ConfigMaps " +
		"(cannot select a cluster: no kubeconfig found; set --kubeconfig or the environment variable KUBECONFIG)\nPod ledger-0: agent injected\n"
	if got.status != 0 || got.stderr != want {
		t.Errorf("got exit status %d, %s\nwant 0, %s", got.status, got.stderr, want)
	}
}
