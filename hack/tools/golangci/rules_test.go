package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// finding is a problem that a linter reports for a line.
type finding struct {
	File   string
	Line   int
	Linter string
}

// TestRulesReportViolations lints a small module that violates each rule of .golangci.yml once, with the configuration
// of this repository. A line with a violation names the linter that must report it: // want "linter". Where a comment
// would change the result, the line before it has // next "linter". No linter may report any other line, so the test
// also detects rules that are too strict.
func TestRulesReportViolations(t *testing.T) {
	root, err := filepath.Abs("../../..")
	check(t, err)
	tree := t.TempDir()
	var want []finding
	names, err := filepath.Glob("testdata/*.txtar")
	check(t, err)
	for _, name := range names {
		archive, err := txtar.ParseFile(name)
		check(t, err)
		for _, file := range archive.Files {
			writeFile(t, filepath.Join(tree, file.Name), file.Data)
			want = append(want, wanted(file)...)
		}
	}
	config, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	check(t, err)
	writeFile(t, filepath.Join(tree, ".golangci.yml"), config)

	got := lint(t, filepath.Join(root, "hack/tools/tool"), tree)
	for f, text := range got {
		if formatter := f.Linter == "gofumpt" || f.Linter == "goimports"; !formatter && !slices.Contains(want, f) {
			t.Errorf("%s:%d: got a report of %s, want none: %s", f.File, f.Line, f.Linter, text)
		}
	}
	for _, f := range want {
		if _, ok := got[f]; !ok {
			t.Errorf("%s:%d: got no report of %s, want one", f.File, f.Line, f.Linter)
		}
	}
	if t.Logf("%d violations", len(want)); len(want) == 0 {
		t.Fatal("got no testdata/*.txtar")
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var wantComment = regexp.MustCompile(`// (want|next) ((?:"[a-z]+" ?)+)`)

func wanted(file txtar.File) []finding {
	var found []finding
	for i, text := range strings.Split(string(file.Data), "\n") {
		match := wantComment.FindStringSubmatch(text)
		if match == nil {
			continue
		}
		line := i + 1
		if match[1] == "next" {
			line++
		}
		for linter := range strings.FieldsSeq(match[2]) {
			found = append(found, finding{file.Name, line, strings.Trim(linter, `"`)})
		}
	}
	return found
}

func writeFile(t *testing.T, name string, data []byte) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Dir(name), 0o755))
	check(t, os.WriteFile(name, data, 0o600))
}

// lint runs the linter as `make lint` does and returns the findings with their messages.
func lint(t *testing.T, tool, tree string) map[finding]string {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.json")
	command := exec.CommandContext(t.Context(), tool, "golangci", "run", "--allow-parallel-runners",
		"--output.json.path", report, "./...")
	command.Dir = tree
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off")
	output, err := command.CombinedOutput()
	if command.ProcessState == nil {
		t.Fatalf("cannot run the linter: %v", err)
	}
	raw, err := os.ReadFile(report)
	if err != nil {
		t.Fatalf("cannot read the linter's report: %v\n%s", err, output)
	}
	var parsed struct {
		Issues []struct {
			FromLinter, Text string
			Pos              struct {
				Filename string
				Line     int
			}
		}
	}
	if err := json.Unmarshal(raw, &parsed); err != nil || len(parsed.Issues) == 0 {
		t.Fatalf("got an empty report (error %v): %s\n%s", err, raw, output)
	}
	got := map[finding]string{}
	for _, issue := range parsed.Issues {
		if issue.FromLinter == "typecheck" {
			t.Fatalf("the code in testdata must compile: %s", issue.Text)
		}
		linter := issue.FromLinter
		if linter == "kubeapilinter" {
			linter, _, _ = strings.Cut(issue.Text, ":") // it consists of linters
		}
		got[finding{issue.Pos.Filename, issue.Pos.Line, linter}] = issue.Text
	}
	return got
}
