package main

import (
	"bytes"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/conclave-dev/conclave/hack/internal/archive"
	"github.com/conclave-dev/conclave/hack/internal/gobuild"
)

// user is numeric and not root, as the restricted Pod Security Standard requires.
const user = "65532:65532"

// assemble returns the image of a program for a platform.
func (r recipe) assemble(program string, platform gobuild.Platform) (v1.Image, error) {
	layer, err := r.layer(program)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{
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
	config.OS, config.Architecture = platform.OS, platform.Architecture
	config.Created = v1.Time{Time: r.Created}
	config.Config = v1.Config{User: user, WorkingDir: "/", Entrypoint: []string{"/" + r.Name()}, Labels: r.labels()}
	return mutate.ConfigFile(image, config)
}

// layer returns a layer that has only the program. Root owns the file, so the process can't change it.
func (r recipe) layer(program string) (v1.Layer, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var files bytes.Buffer
	if err := archive.Tar(&files, r.Created,
		[]archive.File{{Name: r.Name(), Executable: true, Content: content}}); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}
