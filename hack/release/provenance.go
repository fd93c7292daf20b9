package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// subject is a file that a statement is about.
type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// readCommit finds the commit of the sources. Changed sources have none.
func (r *release) readCommit(ctx context.Context) error {
	command := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
	command.Dir, command.Stderr = r.source, os.Stderr
	output, err := command.Output()
	if err != nil {
		return fmt.Errorf("git describe: the sources must be a clone of the repository: %w", err)
	}
	if commit := strings.TrimSpace(string(output)); !strings.HasSuffix(commit, "-dirty") {
		r.commit = commit
	}
	return nil
}

// writeProvenance writes a statement of in-toto, with the predicate SLSA provenance v1, about all files before it:
// SHA256SUMS, which has the statement, comes later. Like all other files, it is the same wherever it is built, so it
// always names the workflow as the builder. Only the signature of that workflow proves it.
func (r *release) writeProvenance() error {
	entries, err := os.ReadDir(r.output)
	if err != nil {
		return err
	}
	subjects := []subject{}
	for _, entry := range entries {
		sum, err := checksum(filepath.Join(r.output, entry.Name()))
		if err != nil {
			return err
		}
		subjects = append(subjects, subject{entry.Name(), map[string]string{"sha256": sum}})
	}
	source := map[string]any{"uri": "git+" + repository + "@refs/tags/" + r.version}
	if r.commit != "" {
		source["digest"] = map[string]string{"gitCommit": r.commit}
	}
	var statement bytes.Buffer
	encoder := json.NewEncoder(&statement)
	encoder.SetIndent("", "  ")
	err = encoder.Encode(map[string]any{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       subjects,
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType":            repository + "/blob/main/SECURITY.md#provenance",
				"externalParameters":   map[string]any{"VERSION": r.version, "REGISTRY": r.registry},
				"internalParameters":   map[string]any{"SOURCE_DATE_EPOCH": r.created.Unix(), "go": runtime.Version()},
				"resolvedDependencies": []any{source},
			},
			"runDetails": map[string]any{
				"builder": map[string]any{"id": repository + "/.github/workflows/release.yaml@refs/tags/" + r.version},
			},
		},
	})
	if err != nil {
		return err
	}
	return r.done("provenance.json", os.WriteFile(filepath.Join(r.output, "provenance.json"), statement.Bytes(), 0o644))
}
