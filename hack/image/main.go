// Image builds a container image of a command of this repository without Docker. The image has only the static binary,
// which runs as a non-root user. The output is NAME.tar, which docker, podman, kind and containerd can load, and
// NAME.spdx.json, a software bill of materials (SBOM).
//
// Builds are reproducible: the same input yields the same digest, regardless of the machine, the directory and the time.
// SOURCE_DATE_EPOCH (in seconds) sets the date of the image, by default 1970-01-01.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// recipe has the inputs of an image.
type recipe struct {
	Source   string // directory of the module
	Package  string // main package, as for `go build`
	Version  string
	Platform string // os/architecture
	Tag      string
	Tags     string // build tags, for tests
	Created  time.Time
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
	var output string
	flags.StringVar(&r.Source, "source", ".", "`directory` of the Go module")
	flags.StringVar(&r.Package, "package", "", "main `package` to build")
	flags.StringVar(&r.Version, "version", "unversioned", "version for the binary and the labels")
	flags.StringVar(&r.Platform, "platform", "linux/"+runtime.GOARCH, "`os/architecture` to build for")
	flags.StringVar(&r.Tag, "tag", "", "`name:tag` of the image")
	flags.StringVar(&r.Tags, "tags", "", "build `tags`, separated by commas, for a binary that only tests use")
	flags.StringVar(&output, "output", "dist", "`directory` for the output")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if r.Package == "" || r.Tag == "" {
		return fmt.Errorf("-package and -tag must be set")
	}
	var err error
	if r.Created, err = sourceDate(os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		return err
	}
	return r.make(ctx, output, stdout)
}

func sourceDate(seconds string) (time.Time, error) {
	if seconds == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH must be a number of seconds, got %q", seconds)
	}
	return time.Unix(n, 0).UTC(), nil
}

// make builds the binary and writes the image and its SBOM.
func (r recipe) make(ctx context.Context, output string, stdout io.Writer) error {
	scratch, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	binary := filepath.Join(scratch, r.Name())
	if err := r.compile(ctx, binary); err != nil {
		return err
	}
	image, err := r.assemble(binary)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(output, 0o755); err != nil {
		return err
	}
	archive := filepath.Join(output, r.Name()+".tar")
	if err := writeArchive(archive, r.Tag, image); err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	if err := r.writeSBOM(filepath.Join(output, r.Name()+".spdx.json"), binary, digest.String()); err != nil {
		return err
	}
	info, err := os.Stat(archive)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s  %s  %s  %.1f MiB\n", archive, r.Tag, digest, float64(info.Size())/(1<<20))
	return nil
}

// platform splits os/architecture.
func (r recipe) platform() (system, architecture string, err error) {
	system, architecture, ok := strings.Cut(r.Platform, "/")
	if !ok || system == "" || architecture == "" {
		return "", "", fmt.Errorf("-platform must be os/architecture, such as linux/arm64, got %q", r.Platform)
	}
	return system, architecture, nil
}
