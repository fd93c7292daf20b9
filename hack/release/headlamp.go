package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/hack/internal/archive"
)

// writeHeadlamp writes the archive of the plugin for Headlamp, and the metadata by which Artifact Hub lists it.
func (r *release) writeHeadlamp(ctx context.Context) error {
	folder, err := os.MkdirTemp("", "headlamp")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if err := r.execute(ctx, filepath.Join(r.source, "clients/headlamp/build"),
		filepath.Join(folder, "conclave")); err != nil {
		return err
	}
	files, err := archive.Folder(os.DirFS(folder), "conclave")
	if err != nil {
		return err
	}
	for i := range files {
		if file := &files[i]; file.Name == "conclave/package.json" {
			file.Content = []byte(strings.Replace(string(file.Content), `"version": "0.0.0"`,
				fmt.Sprintf(`"version": %q`, r.version[1:]), 1))
		}
	}
	file := "conclave-headlamp-" + r.version[1:] + ".tar.gz"
	if err := r.done(file, archive.Write(filepath.Join(r.output, file), r.created, files)); err != nil {
		return err
	}
	sum, err := checksum(filepath.Join(r.output, file))
	if err != nil {
		return err
	}
	content, err := yaml.Marshal(map[string]any{
		"version":     r.version[1:],
		"name":        "conclave",
		"displayName": "Conclave",
		"createdAt":   r.created.UTC().Format("2006-01-02T15:04:05Z"),
		"description": "Groups of pods that elect a coordinator: who leads, since when, and which groups a node would stop",
		"license":     "Apache-2.0",
		"homeURL":     repository,
		"annotations": map[string]string{
			"headlamp/plugin/archive-url":      r.download(file),
			"headlamp/plugin/archive-checksum": "sha256:" + sum,
			"headlamp/plugin/version-compat":   ">=0.44",
			"headlamp/plugin/distro-compat":    "in-cluster,web,desktop",
		},
	})
	if err != nil {
		return err
	}
	return r.done("artifacthub-pkg.yml", os.WriteFile(filepath.Join(r.output, "artifacthub-pkg.yml"), content, 0o644))
}
