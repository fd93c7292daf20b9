package main

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/conclave-dev/conclave/hack/internal/archive"
)

// writeClients writes the packages of the clients: a wheel for pip, and an archive for npm.
func (r *release) writeClients() error {
	license, err := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	if err != nil {
		return err
	}
	if err := r.writeWheel(license); err != nil {
		return err
	}
	files := []archive.File{{Name: "package/LICENSE", Content: license}}
	for _, name := range []string{"README.md", "package.json", "index.js", "index.d.ts"} {
		content, err := os.ReadFile(filepath.Join(r.source, "clients/typescript", name))
		if err != nil {
			return err
		}
		if name == "package.json" {
			content = []byte(strings.Replace(string(content), `"version": "0.0.0"`,
				fmt.Sprintf(`"version": %q`, r.version[1:]), 1))
		}
		files = append(files, archive.File{Name: "package/" + name, Content: content})
	}
	file := "conclave-dev-client-" + r.version[1:] + ".tgz"
	return r.done(file, archive.Write(filepath.Join(r.output, file), r.created, files))
}

// writeWheel writes a wheel: a zip archive with metadata, and a list of all files with their checksums.
func (r *release) writeWheel(license []byte) error {
	source := os.DirFS(filepath.Join(r.source, "clients/python"))
	project, err := fs.ReadFile(source, "pyproject.toml")
	if err != nil {
		return err
	}
	readme, err := fs.ReadFile(source, "README.md")
	if err != nil {
		return err
	}
	all, err := archive.Folder(source, "conclave")
	if err != nil {
		return err
	}
	var files []archive.File
	for _, file := range all {
		if !strings.Contains(file.Name, "__pycache__") {
			files = append(files, file)
		}
	}
	metadata, version := wheelMetadata(string(project), string(readme), r.version[1:])
	info := "conclave-" + version + ".dist-info/"
	files = append(files, archive.File{Name: info + "LICENSE", Content: license},
		archive.File{Name: info + "METADATA", Content: []byte(metadata)},
		archive.File{Name: info + "WHEEL", Content: []byte(
			"Wheel-Version: 1.0\nGenerator: conclave\nRoot-Is-Purelib: true\nTag: py3-none-any\n")})
	var record strings.Builder
	for _, file := range files {
		sum := sha256.Sum256(file.Content)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", file.Name, base64.RawURLEncoding.EncodeToString(sum[:]), len(file.Content))
	}
	fmt.Fprintf(&record, "%sRECORD,,\n", info)
	files = append(files, archive.File{Name: info + "RECORD", Content: []byte(record.String())})
	file := "conclave-" + version + "-py3-none-any.whl"
	return r.done(file, archive.Write(filepath.Join(r.output, file), r.created, files))
}

// wheelMetadata returns the metadata that pip would write, and the version in its notation.
func wheelMetadata(project, readme, release string) (metadata, version string) {
	version = strings.NewReplacer("-alpha.", "a", "-beta.", "b", "-rc.", "rc").Replace(release)
	lines := []string{"Metadata-Version: 2.1", "Version: " + version, "License: Apache-2.0", "License-File: LICENSE"}
	// A test has the result.
	for _, field := range []struct{ name, pattern string }{
		{"Name", `name = "(.*)"`},
		{"Summary", `description = "(.*)"`},
		{"Requires-Python", `requires-python = "(.*)"`},
		{"Keywords", `keywords = \["(.*)"\]`},
		{"Classifier", `    "(.* :: .*)",`},
		{"Project-URL", `([A-Z]\w+ = ".*)"`},
	} {
		for _, found := range regexp.MustCompile(`(?m)^`+field.pattern+`$`).FindAllStringSubmatch(project, -1) {
			value := strings.NewReplacer(` = "`, ", ", `", "`, ",").Replace(found[1])
			lines = append(lines, field.name+": "+value)
		}
	}
	lines = append(lines, "Description-Content-Type: text/markdown", "", readme)
	return strings.Join(lines, "\n"), version
}
