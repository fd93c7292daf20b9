package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// user is numeric and not root, as the restricted Pod Security Standard requires.
const user = "65532:65532"

// labels are the constant labels of all images. The Dockerfile has the same ones.
var labels = map[string]string{
	"org.opencontainers.image.source":   "https://github.com/conclave-dev/conclave",
	"org.opencontainers.image.licenses": "Apache-2.0",
}

// assemble returns an image that has only the binary.
func (r recipe) assemble(binary string) (v1.Image, error) {
	system, architecture, err := r.platform()
	if err != nil {
		return nil, err
	}
	layer, err := r.layer(binary)
	if err != nil {
		return nil, err
	}
	image, err := mutate.Append(empty.Image, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: r.Created}, CreatedBy: "COPY " + r.Name() + " /" + r.Name()},
	})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = system, architecture
	config.Created = v1.Time{Time: r.Created}
	config.Config = v1.Config{
		User:       user,
		WorkingDir: "/",
		Entrypoint: []string{"/" + r.Name()},
		Labels: map[string]string{
			"org.opencontainers.image.title":   r.Title(),
			"org.opencontainers.image.version": r.Version,
		},
	}
	maps.Copy(config.Config.Labels, labels)
	return mutate.ConfigFile(image, config)
}

// layer returns a layer that has only the binary. Root owns the file, so the process can't change it.
func (r recipe) layer(binary string) (v1.Layer, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: r.Name(), Size: int64(len(content)), Mode: 0o755,
		ModTime: r.Created.Truncate(time.Second), Format: tar.FormatPAX,
	}
	if err := writer.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := writer.Write(content); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	})
}

// writeArchive writes the image in the format of `docker save`, which all common runtimes can load.
func writeArchive(file, tag string, image v1.Image) error {
	reference, err := name.NewTag(tag)
	if err != nil {
		return fmt.Errorf("invalid -tag: %w", err)
	}
	if err := tarball.WriteToFile(file, reference, image); err != nil {
		return fmt.Errorf("cannot write %s: %w", file, err)
	}
	return nil
}
