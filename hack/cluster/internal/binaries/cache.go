package binaries

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Cache contains the programs that were built.
type Cache struct {
	Root      string                             // The root folder of the repository.
	Directory string                             // The folder of the cache.
	Printf    func(format string, values ...any) // Prints a line of progress.
}

// FindRoot returns the root folder of the repository that contains a folder.
func FindRoot(from string) (string, error) {
	for directory := from; ; directory = filepath.Dir(directory) {
		if _, err := os.Stat(filepath.Join(directory, Kubernetes.Module, "go.mod")); err == nil {
			return directory, nil
		}
		if directory == filepath.Dir(directory) {
			return "", fmt.Errorf("the working folder must be in Conclave's repository, got %s", from)
		}
	}
}

// DefaultDirectory returns the cache folder of the user.
func DefaultDirectory() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cannot find the cache folder: %w (set XDG_CACHE_HOME)", err)
	}
	return filepath.Join(base, "conclave", "cluster"), nil
}

// Get returns the folder with the component's programs. It builds them if necessary.
func (c Cache) Get(ctx context.Context, component Component) (string, error) {
	programs, err := c.GetAll(ctx, component)
	return programs[component.Name], err
}

// GetAll returns the folders with the programs of components, by the components' names. It builds the missing ones, and reports
// how much is done and an estimate of the rest. It first compiles the components that need no program, because others share
// their packages. Then it builds the next one, and beside it the others, one after the other: a single build leaves a core
// idle whenever it links, or waits for a package that many import.
func (c Cache) GetAll(ctx context.Context, components ...Component) (map[string]string, error) {
	progress := newEstimate()
	var lists []func(context.Context) error
	for _, component := range components {
		if c.has(component) {
			continue
		}
		if err := checkTools(component); err != nil {
			return nil, err
		}
		lists = append(lists, func(ctx context.Context) error {
			units, err := c.list(ctx, component)
			progress.expect(component.Name, units)
			return err
		})
	}
	if err := allAtOnce(ctx, lists...); err != nil {
		return nil, err
	}
	progress.start = time.Now() // Downloads of modules say nothing about the speed of the compiler.
	g := &getter{cache: c, progress: progress, report: c.reporter(progress), programs: map[string]string{}}
	first := 0
	for first < len(components) && components[first].CompileOnly {
		first++
	}
	if err := g.get(ctx, components[:first]); err != nil {
		return nil, err
	}
	next := min(first+1, len(components))
	err := allAtOnce(ctx,
		func(ctx context.Context) error { return g.get(ctx, components[first:next]) },
		func(ctx context.Context) error { return g.get(ctx, components[next:]) })
	if err != nil {
		return nil, err
	}
	return g.programs, nil
}

// getter gets several components.
type getter struct {
	cache    Cache
	progress *estimate
	report   func()

	mu       sync.Mutex
	programs map[string]string
}

// get gets the components one after the other.
func (g *getter) get(ctx context.Context, components []Component) error {
	for _, component := range components {
		directory, err := g.cache.get(ctx, build{component: component, estimate: g.progress, report: g.report})
		if err != nil {
			return err
		}
		g.progress.built(component.Name) // Also if another process has built it.
		g.mu.Lock()
		g.programs[component.Name] = directory
		g.mu.Unlock()
	}
	return nil
}

// allAtOnce calls functions at the same time. If one fails, it interrupts the others and returns the error.
func allAtOnce(ctx context.Context, functions ...func(context.Context) error) (first error) {
	ctx, interrupt := context.WithCancel(ctx)
	defer interrupt()
	errs := make(chan error)
	for _, f := range functions {
		go func() { errs <- f(ctx) }()
	}
	for range functions {
		if err := <-errs; err != nil && first == nil {
			first = err
			interrupt()
		}
	}
	return first
}

// Folder returns the folder of the component's programs, and whether they are there.
func (c Cache) Folder(component Component) (directory string, built bool, err error) {
	key, err := component.key(c.Root)
	if err != nil {
		return "", false, err
	}
	directory = filepath.Join(c.Directory, component.Name+"-"+key)
	_, err = os.Stat(directory)
	return directory, err == nil, nil
}

func (c Cache) has(component Component) bool {
	_, built, err := c.Folder(component)
	return built && err == nil
}

func (c Cache) get(ctx context.Context, b build) (string, error) {
	component := b.component
	if component.CompileOnly {
		c.Printf("compiling %s: %s", component.Name, b.estimate.summary(time.Now()))
		return "", c.run(ctx, b)
	}
	directory, built, err := c.Folder(component)
	if err != nil || built {
		return directory, err
	}
	if err := os.MkdirAll(c.Directory, 0o755); err != nil {
		return "", fmt.Errorf("cannot create the cache folder: %w", err)
	}
	unlock, err := Lock(ctx, filepath.Join(c.Directory, component.Name+".lock"), func() {
		c.Printf("waiting for another build of %s", component.Name)
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(directory); err == nil {
		return directory, nil // The previous holder of the lock has built it.
	}
	if err := c.build(ctx, b, directory); err != nil {
		return "", err
	}
	return directory, nil
}

// Buildable returns an error if this machine lacks tools to build the component. It returns nil if the component is in
// the cache.
func (c Cache) Buildable(component Component) error {
	if c.has(component) {
		return nil
	}
	return checkTools(component)
}

// build builds a component in a temporary folder and renames the folder when it is complete.
func (c Cache) build(ctx context.Context, b build, directory string) error {
	component := b.component
	if err := checkTools(component); err != nil {
		return err
	}
	unfinished := filepath.Join(c.Directory, component.Name+".unfinished")
	if err := os.RemoveAll(unfinished); err != nil { // An interrupted build may have left the folder.
		return fmt.Errorf("cannot create the build folder: %w", err)
	}
	if err := os.Mkdir(unfinished, 0o755); err != nil {
		return fmt.Errorf("cannot create the build folder: %w", err)
	}
	programs := component.Name
	if len(component.Links) > 0 {
		programs = strings.Join(component.Links, ", ")
	}
	c.Printf("building %s (only the first time): %s", programs, b.estimate.summary(time.Now()))
	start := time.Now()
	b.output = unfinished
	if err := c.run(ctx, b); err != nil {
		return err
	}
	for _, link := range component.Links {
		if err := os.Symlink(component.Output, filepath.Join(unfinished, link)); err != nil {
			return fmt.Errorf("cannot link a program of %s: %w", component.Name, err)
		}
	}
	if err := os.Rename(unfinished, directory); err != nil {
		return fmt.Errorf("cannot add %s to the cache: %w", component.Name, err)
	}
	c.Printf("built %s in %s", component.Name, time.Since(start).Round(time.Second))
	return nil
}

// checkTools checks the tools that a build needs. Its error names the packages to install, unlike that of the go command.
func checkTools(component Component) error {
	if _, err := exec.LookPath("go"); err != nil {
		return fmt.Errorf("building %s needs the go command in PATH", component.Name)
	}
	if !component.Cgo {
		return nil
	}
	missing := fmt.Errorf("building %s needs a C compiler and libseccomp: apt-get install gcc libc6-dev pkg-config libseccomp-dev", component.Name)
	for _, tool := range []string{"gcc", "pkg-config"} {
		if _, err := exec.LookPath(tool); err != nil {
			return missing
		}
	}
	if err := exec.Command("pkg-config", "--exists", "libseccomp").Run(); err != nil {
		return missing
	}
	return nil
}
