package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/plugin/report"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// readArchive returns the files of an archive.
func readArchive(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(filepath.Clean(path))
	must.Succeed(t, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	must.Succeed(t, err)
	files := map[string]string{}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		must.Succeed(t, err)
		files[header.Name] = string(content)
	}
}

func TestReportHasNoCredentials(t *testing.T) {
	e := newEnv(t)
	group := e.CreateGroup(t, "ledger")
	e.createPod(t, "ledger-2", func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{"note": "hunter2"}
		container := &pod.Spec.Containers[0]
		container.Image, container.Args = "example.com/ledger:7", []string{"--password=hunter2"}
		container.Env = []corev1.EnvVar{{Name: "PASSWORD", Value: "hunter2"}}
	})
	e.createPod(t, "mail-0", nil)
	event := func(kind, name, message string) *corev1.Event {
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: e.Namespace, GenerateName: "event-"},
			InvolvedObject: corev1.ObjectReference{Namespace: e.Namespace, Kind: kind, Name: name}, Type: "Normal",
			Reason: "Test", Message: message, LastTimestamp: metav1.Now(),
		}
	}
	for _, err := range []error{
		e.Create(t.Context(), event("Pod", "ledger-2", `pull with password: "hunter2" and Bearer abcdefghijk of token 4711`)),
		e.Create(t.Context(), event("ElectionGroup", group.Name, "ledger-2 was elected")),
		e.Create(t.Context(), event("Pod", "mail-0", "of another application")),
	} {
		must.Succeed(t, err)
	}
	file := filepath.Join(t.TempDir(), "case-7.tar.gz")
	got := e.runCommand(t, "report", "ledger", "--file", file)
	if want := file + ": 8 files\n"; got.status != 0 || got.stdout != want {
		t.Errorf("got %+v, want exit status 0 and %q", got, want)
	}
	for _, missing := range []string{"ledger-0", "ledger-1", "ledger-2"} {
		expect.Containsf(t, got.stderr, "missing: journals/"+missing+".json: ", "stderr")
	}
	files := readArchive(t, file)
	for name, want := range map[string][]string{
		"status.txt": {"coordinator ledger-2"}, "explain.txt": {"Its priority, 30, is the highest"},
		"check.txt": {"No operator is installed"}, "version.txt": {"plugin"},
		"group.yaml": {"kind: ElectionGroup", "coordinator:"}, "pods.yaml": {"image: example.com/ledger:7"},
		"events.txt": {"Pod/ledger-2", "and [removed] of token 4711", "ElectionGroup/ledger"},
		"README.txt": {"the group " + e.Namespace + "/ledger", "Missing: journals/ledger-0.json"},
	} {
		text := files["case-7/"+name]
		for _, part := range want {
			expect.Containsf(t, text, part, "%s", name)
		}
	}
	for name, text := range files {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "abcdefghijk") || strings.Contains(text, "mail") ||
			strings.Contains(text, v1.GroupVersion.Group+"/note") {
			t.Errorf("%s has a credential, or something about another application: %s", name, text)
		}
	}
}

func TestReportKeepsFiles(t *testing.T) {
	e := newEnv(t)
	e.CreateGroup(t, "ledger")
	file := filepath.Join(t.TempDir(), "mine")
	must.Succeed(t, os.WriteFile(file, []byte("mine"), 0o600))
	got := e.runCommand(t, "report", "ledger", "--file", file)
	if want := "error: " + file + " exists already: remove it, or name another file with --file\n"; got.status != 2 ||
		got.stderr != want {
		t.Errorf("got %+v, want exit status 2 and %q", got, want)
	}
	if text, err := os.ReadFile(filepath.Clean(file)); err != nil || string(text) != "mine" {
		t.Errorf("got file %q, %v, want it unchanged", text, err)
	}
}

// TestInterruptedReportLeavesNoFile: half an archive would look like a whole one.
func TestInterruptedReportLeavesNoFile(t *testing.T) {
	e := newEnv(t)
	e.CreateGroup(t, "ledger")
	ctx, interrupt := context.WithCancel(t.Context())
	root := report.New(func() []*cobra.Command {
		interrupt()
		return nil
	})
	file := filepath.Join(t.TempDir(), "report.tar.gz")
	root.SetArgs([]string{"ledger", "--file", file, "--kubeconfig", e.Kubeconfig, "-n", e.Namespace})
	root.SetOut(t.Output())
	root.SetErr(t.Output())
	expect.Equalf(t, run(ctx, root), exitInterrupted, "exit status")
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v for the archive, want that it doesn't exist", err)
	}
}
