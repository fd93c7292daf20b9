package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/documents"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// result is the output of the command and its exit status.
type result struct {
	out, err string
	status   int
}

// execute runs the command in this process.
func execute(t *testing.T, args ...string) result {
	t.Helper()
	root := newRoot()
	var out, err bytes.Buffer
	root.SetArgs(append([]string{}, args...)) // nil would be those of the test
	root.SetOut(&out)
	root.SetErr(&err)
	status := run(t.Context(), root)
	return result{out: out.String(), err: err.String(), status: status}
}

func write(t *testing.T, dir, text string) string {
	t.Helper()
	path := filepath.Join(dir, "agent.yaml")
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

const validConfig = `self: a
listen: 127.0.0.1:7401
tls: {insecure: true}
groups:
- name: ledger
  members:
  - {name: a, priority: 10, address: "127.0.0.1:7401"}
  - {name: b, priority: 20, address: "127.0.0.1:7402"}
`

func TestCheckSummarizesValidConfiguration(t *testing.T) {
	path := write(t, t.TempDir(), validConfig)
	want := result{out: path + ` is valid: a in domain default, peers on 127.0.0.1:7401, API on 127.0.0.1:7374
group ledger: StatusTable, Majority, version 1 of b (20), a (10)
warning: ` + path + `: groups[0].members: there are two members: Majority mode needs a majority, which is both of them, so neither can take over if the other one fails; add a third member, which may have priority 0
`}
	expect.Equal(t, execute(t, "check", "--config", path), want)
}

func TestCheckAndRunReportAllErrors(t *testing.T) {
	path := write(t, t.TempDir(), strings.Replace(validConfig, "self: a", "selv: a\ndomain: X", 1))
	want := result{status: 2, err: path + `: selv: is not the name of a field
` + path + `: self: must be a name such as a or ledger-0, got an empty string
` + path + `: domain: must consist of lower-case letters, digits and -, in parts separated by dots, got "X"
` + path + `: groups[0].members: must include self (): add it, or remove this group
`}
	for _, args := range [][]string{{"check", "--config", path}, {"--config", path}} {
		expect.Equalf(t, execute(t, args...), want, "%v", args)
	}
}

func TestInvalidUsageIsReportedInOneLine(t *testing.T) {
	dir := t.TempDir()
	datadriven.RunTest(t, "testdata/usage.txt", func(t *testing.T, d *datadriven.TestData) string {
		got := execute(t, strings.Fields(strings.ReplaceAll(d.Input, "DIR", dir))...)
		expect.Equalf(t, got, result{status: 2, err: got.err}, "%q", d.Input)
		return got.err
	})
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("got files %v, %v, want none", files, err)
	}
}

func TestMissingConfigurationFails(t *testing.T) {
	got := execute(t, "check", "--config", filepath.Join(t.TempDir(), "agent.yaml"))
	if got.status != 1 || !strings.HasPrefix(got.err, "error: cannot read configuration: open ") {
		t.Errorf("got %+v", got)
	}
}

func TestVersion(t *testing.T) {
	version = "v1.2.3"
	defer func() { version = "" }()
	expect.Equal(t, execute(t, "version"), result{out: "v1.2.3\n"})
}

// TestInstallReplacesFile: the file may be the binary of an earlier agent, which runs.
func TestInstallReplacesFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "conclave-agent")
	must.Succeed(t, os.WriteFile(path, []byte("earlier"), 0o600))
	if got := execute(t, "install", path); got != (result{}) {
		t.Fatalf("got %+v", got)
	}
	own := must.ReadFile(t, "/proc/self/exe")
	installed := must.ReadFile(t, path)
	info, err := os.Stat(path)
	must.Succeed(t, err)
	if !bytes.Equal(installed, own) || info.Mode() != 0o755 {
		t.Errorf("got %d bytes with mode %v, want the %d of this binary with mode 0755",
			len(installed), info.Mode(), len(own))
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("got files %v, %v, want one", files, err)
	}
}

// TestCertificatesCreateWorkingConfiguration creates certificates, and checks a configuration that refers to them.
func TestCertificatesCreateWorkingConfiguration(t *testing.T) {
	dir := t.TempDir()
	certs := filepath.Join(dir, "certs")
	args := []string{"certificates", "--group", "ledger", "--member", "a", "--member", "b", "--out", certs}
	got := execute(t, args...)
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	if got.status != 0 || len(lines) != 3 || !strings.HasPrefix(lines[0], certs+"/ca.pem: CA, new, until ") ||
		!strings.HasPrefix(lines[2], certs+"/b.pem: conclave://default/ledger/b, until ") {
		t.Fatalf("got %+v", got)
	}
	for name, mode := range map[string]os.FileMode{
		"ca.pem": 0o644, "ca-key.pem": 0o600, "a.pem": 0o644, "a-key.pem": 0o600, "b.pem": 0o644, "b-key.pem": 0o600,
	} {
		if info, err := os.Stat(filepath.Join(certs, name)); err != nil || info.Mode() != mode {
			t.Errorf("%s: got %v, %v, want mode %v", name, info, err, mode)
		}
	}
	if files, err := os.ReadDir(certs); err != nil || len(files) != 6 {
		t.Errorf("got files %v, %v, want 6", files, err)
	}
	path := write(t, dir, strings.Replace(validConfig, "insecure: true",
		"certFile: certs/a.pem, keyFile: certs/a-key.pem, caFile: certs/ca.pem", 1))
	if got := execute(t, "check", "--config", path); got.status != 0 {
		t.Errorf("got %+v", got)
	}

	// A second run reuses the CA.
	before := must.ReadFile(t, filepath.Join(certs, "ca.pem"))
	if got := execute(t, args...); got.status != 0 || !strings.Contains(got.out, "CA, reused, until") {
		t.Errorf("got %+v", got)
	}
	after, err := os.ReadFile(filepath.Join(certs, "ca.pem"))
	if err != nil || !bytes.Equal(before, after) {
		t.Error("the CA was replaced:", err)
	}
	if _, err := identity.Open(identity.Paths{
		Cert: filepath.Join(certs, "b.pem"), Key: filepath.Join(certs, "b-key.pem"), CA: filepath.Join(certs, "ca.pem"),
	}, nil); err != nil {
		t.Error(err)
	}

	for _, half := range []string{"ca-key.pem", "ca.pem"} {
		data := must.ReadFile(t, filepath.Join(certs, half))
		must.Succeed(t, os.Remove(filepath.Join(certs, half)))
		if got := execute(t, args...); got.status != 1 ||
			!strings.Contains(got.err, "exists without "+filepath.Join(certs, half)+": add the ") {
			t.Errorf("got %+v", got)
		}
		must.Succeed(t, os.WriteFile(filepath.Join(certs, half), data, 0o600))
	}
}

func TestDocumentedCommandsExist(t *testing.T) {
	documents.CheckProgram(t, newRoot, []string{"docs/agent.md", "docs/clients.md"}, "agent")
}

func TestDocumentedConfigurationIsValid(t *testing.T) {
	page := must.ReadFile(t, "../../docs/agent.md")
	sample := regexp.MustCompile("(?s)```yaml\n(self: a\n.*?)```").FindSubmatch(page)
	commands := documents.Parse(string(page))
	t.Chdir(t.TempDir())
	if sample == nil || os.WriteFile("a.yaml", sample[1], 0o600) != nil {
		t.Fatal("docs/agent.md must have the configuration a.yaml")
	}
	ran := 0
	for _, c := range commands {
		if c.Complete && c.Words[0] == "conclave-agent" && slices.Contains([]string{"certificates", "check"}, c.Words[1]) {
			ran++
			root := newRoot()
			root.SetOut(t.Output())
			root.SetArgs(c.Words[1:])
			expect.Succeedf(t, root.Execute(), "%q", c.Words)
		}
	}
	expect.Equalf(t, ran, 2, "commands of the quick start that create and check a configuration")
}

// A program whose pages were unmapped runs on, and has fewer of them in memory.
func TestProgramIsUnmapped(t *testing.T) {
	before := residentFile(t)
	must.Succeed(t, unmapProgram())
	expect.AtMostf(t, residentFile(t), before*3/4, "KiB of files in memory, a quarter less than before")
}

// residentFile returns how much of the mapped files is in memory, in KiB.
func residentFile(t *testing.T) int {
	t.Helper()
	status := must.ReadFile(t, "/proc/self/status")
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	text, _, _ := strings.Cut(rest, "kB")
	kib, err := strconv.Atoi(strings.TrimSpace(text))
	must.Succeed(t, err)
	return kib
}
