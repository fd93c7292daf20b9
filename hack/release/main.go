// Release writes all files of a release to a folder: images for several platforms with their SBOMs, the manifests and the chart with
// the digests of these images, archives of the programs, the manifest for krew, checksums and release notes.
//
// Like those of hack/image, the files depend only on the sources, the flags and SOURCE_DATE_EPOCH.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/conclave-dev/conclave/hack/internal/archive"
)

// release has the inputs of a release.
type release struct {
	source   string // folder of the repository
	output   string
	version  string
	registry string
	created  time.Time
	stdout   io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	r := release{stdout: stdout}
	flags.StringVar(&r.source, "source", ".", "`folder` of the repository")
	flags.StringVar(&r.output, "output", "dist/release", "`folder` for the files, whose content is removed first")
	flags.StringVar(&r.version, "version", "", "`version` of the release, such as v0.1.0")
	flags.StringVar(&r.registry, "registry", "", "`registry` and folder of the images, such as registry.example.com/conclave")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := r.check(); err != nil {
		return err
	}
	if err := r.prepare(); err != nil {
		return err
	}
	return r.write(ctx)
}

// semantic is a version without build metadata, which tags of images can't have.
var semantic = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9a-z-]+(\.[0-9a-z-]+)*)?$`)

// folder is a host, with a port or not, and names.
var folder = regexp.MustCompile(`^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)

func (r *release) check() error {
	if !semantic.MatchString(r.version) {
		return fmt.Errorf("VERSION must be a version such as v0.1.0 or v0.1.0-rc.1, got %q", r.version)
	}
	host, _, _ := strings.Cut(r.registry, "/")
	if !folder.MatchString(r.registry) || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return fmt.Errorf("REGISTRY must be where users pull the images, such as registry.example.com/conclave, got %q", r.registry)
	}
	return nil
}

// image returns the name of an image without its tag.
func (r *release) image(command string) string { return r.registry + "/" + command }

// prepare makes the paths absolute and empties the output.
func (r *release) prepare() error {
	var err error
	for _, path := range []*string{&r.source, &r.output} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if r.created, err = archive.SourceDate(); err != nil {
		return err
	}
	if err := os.RemoveAll(r.output); err != nil {
		return err
	}
	return os.MkdirAll(r.output, 0o755)
}

func (r *release) write(ctx context.Context) error {
	changes, err := r.changes() // first, because it fails if nobody has written them
	if err != nil {
		return err
	}
	digests := map[string]string{}
	for _, command := range []string{"manager", "agent", "dashboard", "chaos"} {
		if digests[command], err = r.writeImage(ctx, "./cmd/"+command, "linux/amd64,linux/arm64"); err != nil {
			return err
		}
	}
	if err := r.writeInstaller(ctx, digests); err != nil {
		return err
	}
	if err := r.writeChart(digests); err != nil {
		return err
	}
	for _, p := range programs {
		for _, platform := range p.platforms {
			if err := r.writeProgram(ctx, p, platform); err != nil {
				return err
			}
		}
	}
	if err := r.writeKrew(); err != nil {
		return err
	}
	if err := r.writeNotes(changes, digests); err != nil {
		return err
	}
	return r.writeChecksums()
}

// done reports a file that has been written.
func (r *release) done(file string, err error) error {
	if err == nil {
		fmt.Fprintln(r.stdout, filepath.Join(r.output, file))
	}
	return err
}

// execute runs a program in the folder of the repository.
func (r *release) execute(ctx context.Context, program string, arguments ...string) error {
	command := exec.CommandContext(ctx, program, arguments...)
	command.Dir, command.Stdout, command.Stderr = r.source, r.stdout, os.Stderr
	command.Env = append(os.Environ(), "GOWORK=off", fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.created.Unix()))
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(append([]string{program}, arguments...), " "), cmp.Or(ctx.Err(), err))
	}
	return nil
}
