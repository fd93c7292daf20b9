// Package image assembles container images that have only one static program.
package image

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/conclave-dev/conclave/hack/internal/archive"
	"github.com/conclave-dev/conclave/hack/internal/gobuild"
)

// User is numeric and not root, as the restricted Pod Security Standard requires.
const User = "65532:65532"

// Image is what an image has besides its program.
type Image struct {
	Name     string // The name of the program, which is in the root folder.
	Platform gobuild.Platform
	Created  time.Time
	Labels   map[string]string
}

// Assemble returns the image of a program.
func (i Image) Assemble(program string) (v1.Image, error) {
	layer, err := i.layer(program)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: i.Created}, CreatedBy: "COPY " + i.Name + " /" + i.Name},
	})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = i.Platform.OS, i.Platform.Architecture
	config.Created = v1.Time{Time: i.Created}
	config.Config = v1.Config{User: User, WorkingDir: "/", Entrypoint: []string{"/" + i.Name}, Labels: i.Labels}
	return mutate.ConfigFile(image, config)
}

// layer returns a layer that has only the program. Root owns the file, so the process can't change it.
func (i Image) layer(program string) (v1.Layer, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var files bytes.Buffer
	if err := archive.Tar(&files, i.Created, []archive.File{{Name: i.Name, Executable: true, Content: content}}); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}

// Write writes the image of a program for this machine to a file, in the format of `docker save`.
func Write(file, tag, program string) error {
	reference, err := name.NewTag(tag)
	if err != nil {
		return err
	}
	platform := gobuild.Platform{OS: "linux", Architecture: runtime.GOARCH}
	image, err := Image{Name: filepath.Base(program), Platform: platform, Created: time.Unix(0, 0)}.Assemble(program)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(file, reference, image)
}
