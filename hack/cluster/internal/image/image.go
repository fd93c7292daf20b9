// Package image writes container images of one program without a registry or a builder. An image is a tar file that "ctr
// images import" and "docker load" can read.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// User is the user and group of the program. They aren't root, so that Pod Security "restricted" admits the pods.
const User = "65532:65532"

// Write writes an image with one static program, /program. The result depends only on the reference and the program.
func Write(destination io.Writer, reference string, program []byte) error {
	layer, err := archive(entry{"program", 0o755, program})
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{"/program"}, "User": User, "WorkingDir": "/"},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
	})
	if err != nil {
		return fmt.Errorf("cannot encode the config of the image %s: %w", reference, err)
	}
	configName, layerName := digest(config)+".json", digest(layer)+".tar"
	manifest, err := json.Marshal([]any{map[string]any{
		"Config": configName, "RepoTags": []string{reference}, "Layers": []string{layerName},
	}})
	if err != nil {
		return fmt.Errorf("cannot encode the manifest of the image %s: %w", reference, err)
	}
	content, err := archive(entry{configName, 0o644, config}, entry{layerName, 0o644, layer}, entry{"manifest.json", 0o644, manifest})
	if err != nil {
		return err
	}
	if _, err := destination.Write(content); err != nil {
		return fmt.Errorf("cannot write the image %s: %w", reference, err)
	}
	return nil
}

// WriteFile writes an image of the program in a file to the file destination. Whoever reads that file finds all or nothing,
// also if this process is killed, or if another one writes the same image.
func WriteFile(destination, reference, program string) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("cannot read the program of the image %s: %w", reference, err)
	}
	file, err := os.CreateTemp(filepath.Dir(destination), filepath.Base(destination)+".*")
	if err != nil {
		return fmt.Errorf("cannot write the image %s: %w", reference, err)
	}
	defer func() { _, _ = file.Close(), os.Remove(file.Name()) }() // Both fail at the end of a success.
	if err := Write(file, reference, content); err != nil {
		return err
	}
	if err := errors.Join(file.Chmod(0o644), file.Close()); err != nil {
		return fmt.Errorf("cannot write the image %s: %w", reference, err)
	}
	return os.Rename(file.Name(), destination)
}

type entry struct {
	name string
	mode int64
	data []byte
}

func archive(entries ...entry) ([]byte, error) {
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	for _, entry := range entries {
		header := &tar.Header{Name: entry.name, Mode: entry.mode, Size: int64(len(entry.data)), Format: tar.FormatPAX}
		if err := writer.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("cannot archive %s: %w", entry.name, err)
		}
		if _, err := writer.Write(entry.data); err != nil {
			return nil, fmt.Errorf("cannot archive %s: %w", entry.name, err)
		}
	}
	if err := writer.Close(); err != nil {
		return nil, fmt.Errorf("cannot finish an archive: %w", err)
	}
	return buffer.Bytes(), nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
