package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestProvenanceNamesFilesSourceAndBuilder(t *testing.T) {
	r := newRelease(t, root)
	r.commit = strings.Repeat("a", 40)
	writeArchives(t, r)
	files := names(t, r.output)
	must.Succeed(t, r.writeProvenance())
	var statement struct {
		Type          string `json:"_type"`
		PredicateType string
		Subject       []subject
		Predicate     struct {
			BuildDefinition struct {
				BuildType            string
				ExternalParameters   struct{ Version, Registry string }
				ResolvedDependencies []struct {
					URI    string
					Digest struct{ GitCommit string }
				}
			}
			RunDetails struct{ Builder struct{ ID string } }
		}
	}
	must.Succeed(t, json.Unmarshal(read(t, r, "provenance.json"), &statement))
	if statement.Type != "https://in-toto.io/Statement/v1" || statement.PredicateType != "https://slsa.dev/provenance/v1" {
		t.Errorf("got statement %s with predicate %s", statement.Type, statement.PredicateType)
	}
	if len(files) == 0 || len(statement.Subject) != len(files) {
		t.Fatalf("got %d subjects, want the %d files", len(statement.Subject), len(files))
	}
	for i, file := range files {
		want, err := checksum(filepath.Join(r.output, file))
		if got := statement.Subject[i]; err != nil || got.Name != file || got.Digest["sha256"] != want {
			t.Errorf("got subject %+v (%v), want %s with checksum %s", got, err, file, want)
		}
	}
	build := statement.Predicate.BuildDefinition
	if build.ExternalParameters.Version != r.version || build.ExternalParameters.Registry != r.registry || build.BuildType == "" {
		t.Errorf("got build %+v, want the version and the registry", build)
	}
	if source := build.ResolvedDependencies[0]; source.URI != "git+"+repository+"@refs/tags/v0.1.0" || source.Digest.GitCommit != r.commit {
		t.Errorf("got source %+v, want the tag and the commit", source)
	}
	// SECURITY.md tells users to expect this identity in the certificate.
	security, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	if id := statement.Predicate.RunDetails.Builder.ID; err != nil || id == "" || !strings.Contains(string(security), "--certificate-identity "+id) {
		t.Errorf("got builder %q (%v), want the identity in SECURITY.md", id, err)
	}
}

func TestChangedSourcesHaveNoCommit(t *testing.T) {
	r := newRelease(t, t.TempDir())
	git := func(arguments ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, arguments...)...)
		command.Dir = r.source
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", arguments, err, output)
		}
	}
	file := filepath.Join(r.source, "file")
	write := func(content string) {
		t.Helper()
		must.Succeed(t, os.WriteFile(file, []byte(content), 0o600))
	}
	git("init", "--quiet")
	write("1")
	git("add", "file")
	git("commit", "--quiet", "--message", "1")
	git("tag", "v0.1.0")
	if err := r.readCommit(t.Context()); err != nil || !regexp.MustCompile(`^[0-9a-f]{40}$`).MatchString(r.commit) {
		t.Errorf("got commit %q (%v), want a hash", r.commit, err)
	}
	r.commit = ""
	write("22")
	if err := r.readCommit(t.Context()); err != nil || r.commit != "" {
		t.Errorf("got commit %q (%v) of changed sources, want none", r.commit, err)
	}
	r.source = t.TempDir()
	if err := r.readCommit(t.Context()); err == nil || !strings.Contains(err.Error(), "must be a clone of the repository") {
		t.Errorf("got error %v without a repository, want one that asks for a clone", err)
	}
}
