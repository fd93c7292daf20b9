package binaries

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
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

// GetAll returns the folders with the programs of components, by the components' names. It builds the missing ones: the first
// component and, beside it, the others, one after the other. A single build leaves a core idle whenever it links, or waits for a
// package that many import.
func (c Cache) GetAll(ctx context.Context, components ...Component) (map[string]string, error) {
	for _, component := range components {
		if err := c.Buildable(component); err != nil {
			return nil, err
		}
	}
	folders := make([]string, len(components))
	work, ctx := errgroup.WithContext(ctx)
	get := func(from, to int) {
		work.Go(func() (err error) {
			for i := from; i < to && err == nil; i++ {
				folders[i], err = c.get(ctx, components[i])
			}
			return err
		})
	}
	next := min(1, len(components))
	get(0, next)
	get(next, len(components))
	if err := work.Wait(); err != nil {
		return nil, err
	}
	programs := map[string]string{}
	for i, component := range components {
		programs[component.Name] = folders[i]
	}
	return programs, nil
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

func (c Cache) get(ctx context.Context, component Component) (string, error) {
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
	if err := c.build(ctx, component, directory); err != nil {
		return "", err
	}
	return directory, nil
}

// Buildable returns an error if this machine lacks tools to build the component. It returns nil if the component is in
// the cache.
func (c Cache) Buildable(component Component) error {
	if _, built, err := c.Folder(component); built && err == nil {
		return nil
	}
	return checkTools(component)
}

// build builds a component in a temporary folder and renames the folder when it is complete.
func (c Cache) build(ctx context.Context, component Component, directory string) error {
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
	c.Printf("building %s (only the first time)", programs)
	start := time.Now()
	if err := c.run(ctx, component, unfinished); err != nil {
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
