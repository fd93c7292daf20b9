// Release writes all files of a release to a folder: images for several platforms with their SBOMs, the manifests, the
// chart and the samples with the digests of these images, archives of the programs, the manifest for krew, the
// clients for Python and TypeScript, the plugin for Headlamp, release notes, the provenance of all these files, and
// checksums.
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
	"path"
	"path/filepath"
	"regexp"
	"slices"
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
	// platforms are those of the images and programs.
	platforms []string
	created   time.Time
	commit    string // of the sources, empty if they are changed
	stdout    io.Writer
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
	flags.StringVar(&r.registry, "registry", "",
		"`registry` and folder of the images, such as registry.example.com/conclave")
	flags.Func("platform",
		"`platforms` of images and programs, such as linux/amd64,linux/arm64; all by default. Package managers need all",
		func(value string) error {
			r.platforms = strings.Split(value, ",")
			return nil
		})
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
	for _, platform := range r.platforms {
		if !slices.Contains(programs[0].platforms, platform) {
			return fmt.Errorf("-platform must be some of %s, got %q", strings.Join(programs[0].platforms, ","), platform)
		}
	}
	if len(r.supported(imagePlatforms)) == 0 {
		return fmt.Errorf("-platform must have one for images, %s, got %s", strings.Join(imagePlatforms, " or "),
			strings.Join(r.platforms, ","))
	}
	host, _, _ := strings.Cut(r.registry, "/")
	if !folder.MatchString(r.registry) || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return fmt.Errorf("REGISTRY must be where users pull the images, such as registry.example.com/conclave, got %q",
			r.registry)
	}
	return nil
}

var imagePlatforms = []string{"linux/amd64", "linux/arm64"}

// supported returns those of the platforms for which this release is.
func (r *release) supported(platforms []string) []string {
	if r.platforms == nil {
		return platforms
	}
	return slices.DeleteFunc(slices.Clone(platforms),
		func(platform string) bool { return !slices.Contains(r.platforms, platform) })
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
	if err := r.checkModules(); err != nil {
		return err
	}
	if err := r.readCommit(ctx); err != nil {
		return err
	}
	digests := map[string]string{}
	for _, source := range []string{"./cmd/manager", "./cmd/agent", "./cmd/kubectl-conclave", "./examples/worker"} {
		if digests[path.Base(source)], err = r.writeImage(ctx, source,
			strings.Join(r.supported(imagePlatforms), ",")); err != nil {
			return err
		}
	}
	if err := r.writeInstaller(ctx, digests); err != nil {
		return err
	}
	if err := r.writeChart(digests); err != nil {
		return err
	}
	if err := r.writeSamples(digests); err != nil {
		return err
	}
	if err := r.writePrograms(ctx); err != nil {
		return err
	}
	if err := r.writeClients(); err != nil {
		return err
	}
	if err := r.writeHeadlamp(ctx); err != nil {
		return err
	}
	if err := r.writeNotes(changes, digests); err != nil {
		return err
	}
	if err := r.writeProvenance(); err != nil {
		return err
	}
	return r.writeChecksums()
}

// writePrograms writes the archives of the programs, and what krew needs to install one.
func (r *release) writePrograms(ctx context.Context) error {
	for _, p := range programs {
		for _, platform := range r.supported(p.platforms) {
			if err := r.writeProgram(ctx, p, platform); err != nil {
				return err
			}
		}
	}
	if r.platforms != nil {
		return nil // krew needs the archives of all platforms.
	}
	return r.writeKrew()
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
