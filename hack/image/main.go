// Image builds a container image of a command of this repository without Docker. The image has only the static binary,
// which runs as a non-root user. The output is NAME.tar, which docker, podman, kind and containerd can load, and
// NAME.spdx.json, a software bill of materials (SBOM).
//
// With several platforms, or -index, NAME.tar is an OCI archive with an image index, because the format of `docker
// save` has no index, and there is a NAME-OS-ARCHITECTURE.spdx.json for each platform.
//
// Builds are reproducible: the same input yields the same digest, regardless of the machine, the directory and the
// time. SOURCE_DATE_EPOCH (in seconds) sets the date of the image, by default 1970-01-01.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/conclave-dev/conclave/hack/internal/archive"
	"github.com/conclave-dev/conclave/hack/internal/gobuild"
)

// recipe has the inputs of an image.
type recipe struct {
	gobuild.Program

	Platforms []gobuild.Platform
	// Index is whether to write an OCI archive with an image index, also for one platform.
	Index   bool
	Tag     string
	Created time.Time
}

// Name returns the name of the binary, which is also that of the output files.
func (r recipe) Name() string {
	if r.Package == "." {
		return filepath.Base(r.Source)
	}
	return filepath.Base(r.Package)
}

// Title returns the display name. The name of the kubectl plugin already includes "conclave".
func (r recipe) Title() string {
	if strings.Contains(r.Name(), "conclave") {
		return r.Name()
	}
	return "conclave-" + r.Name()
}

// constantLabels are the labels that all images have. The Dockerfile has the same ones.
var constantLabels = map[string]string{
	"org.opencontainers.image.source":   "https://github.com/conclave-dev/conclave",
	"org.opencontainers.image.licenses": "Apache-2.0",
}

func (r recipe) labels() map[string]string {
	labels := maps.Clone(constantLabels)
	labels["org.opencontainers.image.title"], labels["org.opencontainers.image.version"] = r.Title(), r.Version
	return labels
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	var r recipe
	var platforms, output string
	flags.StringVar(&r.Source, "source", ".", "`directory` of the Go module")
	flags.StringVar(&r.Package, "package", "", "main `package` to build")
	flags.StringVar(&r.Version, "version", "unversioned", "version for the binary and the labels")
	flags.BoolVar(&r.Index, "index", false, "write an OCI archive with an image index, also for one platform")
	flags.StringVar(&platforms, "platform", "linux/"+runtime.GOARCH,
		"`os/architecture` to build for, or several, separated by commas")
	flags.StringVar(&r.Tag, "tag", "", "`name:tag` of the image")
	flags.StringVar(&r.Tags, "tags", "", "build `tags`, separated by commas, for a binary that only tests use")
	flags.StringVar(&output, "output", "dist", "`directory` for the output")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if r.Package == "" || r.Tag == "" {
		return fmt.Errorf("-package and -tag must be set")
	}
	for text := range strings.SplitSeq(platforms, ",") {
		platform, err := gobuild.ParsePlatform(text)
		if err != nil {
			return fmt.Errorf("-platform %w", err)
		}
		r.Platforms = append(r.Platforms, platform)
	}
	r.Index = r.Index || len(r.Platforms) > 1
	if _, err := name.NewTag(r.Tag); err != nil {
		return fmt.Errorf("invalid -tag: %w", err)
	}
	var err error
	if r.Created, err = archive.SourceDate(); err != nil {
		return err
	}
	return r.make(ctx, output, stdout)
}

// make builds the binaries and writes the images and their SBOMs.
func (r recipe) make(ctx context.Context, output string, stdout io.Writer) error {
	if err := os.MkdirAll(output, 0o755); err != nil {
		return err
	}
	images := make([]v1.Image, 0, len(r.Platforms))
	for _, platform := range r.Platforms {
		built, err := r.build(ctx, platform, output)
		if err != nil {
			return err
		}
		images = append(images, built)
	}
	file := filepath.Join(output, r.Name()+".tar")
	digest, err := r.write(file, images)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", file, err)
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s  %s  %s  %.1f MiB\n", file, r.Tag, digest, float64(info.Size())/(1<<20))
	return nil
}

// build builds the image of a platform, and writes its SBOM.
func (r recipe) build(ctx context.Context, platform gobuild.Platform, output string) (v1.Image, error) {
	scratch, err := os.MkdirTemp("", "image-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	binary := filepath.Join(scratch, r.Name())
	if err := r.Compile(ctx, platform, binary); err != nil {
		return nil, err
	}
	assembled, err := r.assemble(binary, platform)
	if err != nil {
		return nil, err
	}
	digest, err := assembled.Digest()
	if err != nil {
		return nil, err
	}
	sbom := r.Name()
	if r.Index {
		sbom += "-" + platform.OS + "-" + platform.Architecture
	}
	return assembled, r.writeSBOM(filepath.Join(output, sbom+".spdx.json"), binary, digest.String())
}
