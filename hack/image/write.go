package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/conclave-dev/conclave/hack/internal/archive"
)

// write writes one image in the format of `docker save`, which all common runtimes can load, or all as an OCI archive.
// It returns the digest by which a registry knows the image, or the index.
func (r recipe) write(file string, images []v1.Image) (v1.Hash, error) {
	tag, err := name.NewTag(r.Tag)
	if err != nil {
		return v1.Hash{}, err
	}
	if r.Index {
		return r.writeIndex(file, tag, images)
	}
	if err := tarball.WriteToFile(file, tag, images[0]); err != nil {
		return v1.Hash{}, err
	}
	return images[0].Digest()
}

// writeIndex writes an OCI archive, which has the image index of all platforms.
func (r recipe) writeIndex(file string, tag name.Tag, images []v1.Image) (v1.Hash, error) {
	folder, err := os.MkdirTemp("", "layout-")
	if err != nil {
		return v1.Hash{}, err
	}
	defer os.RemoveAll(folder)
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	for i, image := range images {
		if err := path.WriteImage(image); err != nil {
			return v1.Hash{}, err
		}
		manifest, err := partial.Descriptor(image)
		if err != nil {
			return v1.Hash{}, err
		}
		// mutate.AppendManifests would keep this field, which skopeo 1.9 drops, so that the digest changes when it pushes.
		manifest.ArtifactType = ""
		manifest.Platform = &v1.Platform{OS: r.Platforms[i].OS, Architecture: r.Platforms[i].Architecture}
		index.Manifests = append(index.Manifests, *manifest)
	}
	content, err := json.Marshal(index)
	if err != nil {
		return v1.Hash{}, err
	}
	digest, size, err := v1.SHA256(bytes.NewReader(content))
	if err != nil {
		return v1.Hash{}, err
	}
	if err := path.WriteBlob(digest, io.NopCloser(bytes.NewReader(content))); err != nil {
		return v1.Hash{}, err
	}
	// containerd gives the image the name of the first annotation. Other tools select the image by the second one.
	err = path.AppendDescriptor(
		v1.Descriptor{MediaType: index.MediaType, Digest: digest, Size: size, Annotations: map[string]string{
			"io.containerd.image.name":          tag.Name(),
			"org.opencontainers.image.ref.name": tag.TagStr(),
		}})
	if err != nil {
		return v1.Hash{}, err
	}
	files, err := archive.Folder(os.DirFS(folder), ".")
	if err != nil {
		return v1.Hash{}, err
	}
	if err := archive.Write(file, r.Created, files); err != nil {
		return v1.Hash{}, err
	}
	return digest, nil
}
