package binaries

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Cache holds what was built.
type Cache struct {
	Root      string // The top of the repository.
	Directory string // Where the programs are kept.
	Say       func(format string, values ...any)
}

// FindRoot finds the top of the repository, from a folder in it.
func FindRoot(from string) (string, error) {
	for directory := from; ; directory = filepath.Dir(directory) {
		if _, err := os.Stat(filepath.Join(directory, Kubernetes.Module, "go.mod")); err == nil {
			return directory, nil
		}
		if directory == filepath.Dir(directory) {
			return "", fmt.Errorf("%s is not in Conclave's repository: change to its top first", from)
		}
	}
}

// DefaultDirectory is where a user's programs are kept.
func DefaultDirectory() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w (set XDG_CACHE_HOME)", err)
	}
	return filepath.Join(base, "conclave", "cluster"), nil
}

// Get returns the folder that has the component's programs, and builds them first if need be.
func (c Cache) Get(ctx context.Context, component Component) (string, error) {
	key, err := component.key(c.Root)
	if err != nil {
		return "", err
	}
	directory := filepath.Join(c.Directory, component.Name+"-"+key)
	if _, err := os.Stat(directory); err == nil {
		return directory, nil
	}
	if err := os.MkdirAll(c.Directory, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder: %w", err)
	}
	unlock, err := Lock(filepath.Join(c.Directory, component.Name+".lock"), func() {
		c.Say("waiting for another build of %s", component.Name)
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(directory); err == nil {
		return directory, nil // Whoever held the lock has built it.
	}
	if err := c.build(ctx, component, directory); err != nil {
		return "", err
	}
	return directory, nil
}

// Buildable returns what this machine lacks to build the component: nil if nothing, or if it is built already.
func (c Cache) Buildable(component Component) error {
	key, err := component.key(c.Root)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(c.Directory, component.Name+"-"+key)); err == nil {
		return nil
	}
	return checkTools(component)
}

// build makes the folder whole or not at all.
func (c Cache) build(ctx context.Context, component Component, directory string) error {
	if err := checkTools(component); err != nil {
		return err
	}
	unfinished := filepath.Join(c.Directory, component.Name+".unfinished")
	if err := os.RemoveAll(unfinished); err != nil { // Left by a build that was interrupted.
		return fmt.Errorf("make room for a build: %w", err)
	}
	if err := os.Mkdir(unfinished, 0o755); err != nil {
		return fmt.Errorf("make room for a build: %w", err)
	}
	programs := component.Name
	if len(component.Links) > 0 {
		programs = strings.Join(component.Links, ", ")
	}
	c.Say("building %s (first time only, about %d min)", programs, component.Minutes)
	start := time.Now()
	if err := c.runBuild(ctx, component, unfinished); err != nil {
		return err
	}
	for _, link := range component.Links {
		if err := os.Symlink(component.Output, filepath.Join(unfinished, link)); err != nil {
			return fmt.Errorf("name a program of %s: %w", component.Name, err)
		}
	}
	if err := os.Rename(unfinished, directory); err != nil {
		return fmt.Errorf("put %s into the cache: %w", component.Name, err)
	}
	c.Say("built %s in %s", component.Name, time.Since(start).Round(time.Second))
	return nil
}

func (c Cache) runBuild(ctx context.Context, component Component, output string) error {
	module := filepath.Join(c.Root, component.Module)
	goMod, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return fmt.Errorf("look at what %s is built from: %w", component.Name, err)
	}
	target := output + string(filepath.Separator)
	if component.Output != "" {
		target = filepath.Join(output, component.Output)
	}
	arguments, err := component.arguments(target, string(goMod))
	if err != nil {
		return err
	}
	var said bytes.Buffer
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) } // It ends its compilers, too.
	command.Dir = module
	command.Env = append(os.Environ(), component.environment()...)
	command.Stdout, command.Stderr = &said, &said
	if err := command.Run(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted while building %s", component.Name)
		}
		return fmt.Errorf("build %s: %w\n%s", component.Name, err, strings.TrimSpace(said.String()))
	}
	return nil
}

// checkTools looks for what a build in C needs before the go command says so in its own words.
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
