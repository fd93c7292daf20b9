package main

import (
	"archive/tar"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
)

// writeImage writes the OCI archive and the SBOMs of a command for some platforms, and returns the digest of its image index.
func (r *release) writeImage(ctx context.Context, source, platforms string) (string, error) {
	command := path.Base(source)
	err := r.execute(ctx, "go", "-C", "hack/image", "run", "-trimpath", ".", "-source", r.source, "-package", source, "-version", r.version,
		"-tag", r.image(command)+":"+r.version, "-index", "-platform", platforms, "-output", r.output)
	if err != nil {
		return "", err
	}
	return indexDigest(filepath.Join(r.output, command+".tar"))
}

// indexDigest returns the digest of the image index in an OCI archive.
func indexDigest(file string) (string, error) {
	content, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer content.Close()
	files := tar.NewReader(content)
	for {
		header, err := files.Next()
		if err != nil {
			return "", fmt.Errorf("%s has no index.json: %w", file, err)
		}
		if header.Name != "index.json" {
			continue
		}
		text, err := io.ReadAll(files)
		if err != nil {
			return "", err
		}
		var index struct {
			Manifests []struct{ Digest string }
		}
		if err := json.Unmarshal(text, &index); err != nil {
			return "", fmt.Errorf("index.json of %s: %w", file, err)
		}
		if len(index.Manifests) != 1 {
			return "", fmt.Errorf("index.json of %s must have one image index, got %d", file, len(index.Manifests))
		}
		return index.Manifests[0].Digest, nil
	}
}

// writeInstaller writes the manifests with the digests of the images.
func (r *release) writeInstaller(ctx context.Context, digests map[string]string) error {
	return r.execute(ctx, "make", "--no-print-directory", "build-installer", "INSTALLER="+filepath.Join(r.output, "install.yaml"),
		"IMG="+r.image("manager")+"@"+digests["manager"], "AGENT_IMG="+r.image("agent")+"@"+digests["agent"])
}
