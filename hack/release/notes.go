package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// changes returns what CHANGELOG.md says about the version. A release candidate has the entry of the version for which
// it is one.
func (r *release) changes() (string, error) {
	content, err := os.ReadFile(filepath.Join(r.source, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	stable, _, _ := strings.Cut(r.version, "-")
	for section := range strings.SplitSeq(string(content), "\n## ") {
		heading, text, _ := strings.Cut(section, "\n")
		if version, _, _ := strings.Cut(heading, " "); version == r.version || version == stable {
			return strings.TrimSpace(text), nil
		}
	}
	return "", fmt.Errorf("CHANGELOG.md must have an entry for the release: ## %s - DATE", r.version)
}

// checkModules fails unless the modules that importers get together are of one version. Replacements hide that in this
// repository.
func (r *release) checkModules() error {
	const file, required = "controllerruntime/go.mod", "github.com/conclave-dev/conclave/client "
	content, err := os.ReadFile(filepath.Join(r.source, file))
	if err != nil {
		return err
	}
	stable, _, _ := strings.Cut(r.version, "-")
	for line := range strings.Lines(string(content)) {
		if version, found := strings.CutPrefix(strings.TrimSpace(line), required); found && version == stable {
			return nil
		}
	}
	return fmt.Errorf("%s must require %s%s", file, required, stable)
}

// writeNotes writes the release notes: the changes, and the images.
func (r *release) writeNotes(changes string, digests map[string]string) error {
	var notes strings.Builder
	fmt.Fprintf(&notes, "%s\n\n### Images\n\n| image | digest |\n|---|---|\n", changes)
	for _, command := range slices.Sorted(maps.Keys(digests)) {
		fmt.Fprintf(&notes, "| `%s:%s` | `%s` |\n", r.image(command), r.version, digests[command])
	}
	return r.done("notes.md", os.WriteFile(filepath.Join(r.output, "notes.md"), []byte(notes.String()), 0o644))
}

// writeChecksums writes SHA256SUMS, in the format of sha256sum --check.
func (r *release) writeChecksums() error {
	entries, err := os.ReadDir(r.output)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, entry := range entries {
		sum, err := checksum(filepath.Join(r.output, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum, entry.Name())
	}
	return r.done("SHA256SUMS", os.WriteFile(filepath.Join(r.output, "SHA256SUMS"), []byte(sums.String()), 0o644))
}
