package binaries

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// percentStep is the progress between two reports.
const percentStep = 5

// build is a run of "go build".
type build struct {
	component Component
	output    string
	estimate  *estimate
	report    func()
}

// command returns a go command in the component's module.
func (c Cache) command(ctx context.Context, component Component, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) } // The go command stops its compilers too.
	command.Dir = filepath.Join(c.Root, component.Module)
	command.Env = append(os.Environ(), component.environment()...)
	if os.Getenv("GOGC") == "" {
		// The compiler collects garbage less often. It needs a fifth less time, and a quarter more memory.
		command.Env = append(command.Env, "GOGC=400")
	}
	return command
}

// list returns the packages that a component consists of, and downloads their modules.
func (c Cache) list(ctx context.Context, component Component) (map[string]unit, error) {
	arguments := []string{"list", "-deps", "-json=ImportPath,Dir,GoFiles,CgoFiles,Imports,Module"}
	if component.Tags != "" {
		arguments = append(arguments, "-tags", component.Tags)
	}
	var log strings.Builder
	command := c.command(ctx, component, append(arguments, component.Packages...)...)
	command.Stderr = &log
	output, err := command.Output()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("interrupted while listing the packages of %s", component.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list the packages of %s: %w\n%s", component.Name, err, strings.TrimSpace(log.String()))
	}
	units := map[string]unit{}
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var p struct {
			ImportPath, Dir            string
			GoFiles, CgoFiles, Imports []string
			Module                     *struct{ Version string }
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return units, nil
		} else if err != nil {
			return nil, fmt.Errorf("cannot list the packages of %s: %w", component.Name, err)
		}
		u := unit{Key: p.ImportPath, Imports: p.Imports}
		if p.Module != nil {
			u.Key += "@" + p.Module.Version
		}
		for _, file := range append(p.GoFiles, p.CgoFiles...) {
			if info, err := os.Stat(filepath.Join(p.Dir, file)); err == nil {
				u.Size += info.Size()
			}
		}
		units[p.ImportPath] = u
	}
}

// run runs "go build". Without an output it only compiles, so that later builds find the packages in Go's build cache.
func (c Cache) run(ctx context.Context, b build) error {
	component := b.component
	goMod, err := os.ReadFile(filepath.Join(c.Root, component.Module, "go.mod"))
	if err != nil {
		return fmt.Errorf("cannot read the sources of %s: %w", component.Name, err)
	}
	target := os.DevNull
	switch {
	case component.Output != "":
		target = filepath.Join(b.output, component.Output)
	case b.output != "":
		target = b.output + string(filepath.Separator)
	}
	arguments, err := component.arguments(target, string(goMod))
	if err != nil {
		return err
	}
	command := c.command(ctx, component, append([]string{arguments[0], "-v"}, arguments[1:]...)...)
	stderr, err := command.StderrPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("cannot build %s: %w", component.Name, err)
	}
	log := b.follow(stderr)
	if err := command.Wait(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted while building %s; the next build continues there", component.Name)
		}
		return fmt.Errorf("cannot build %s: %w\n%s", component.Name, err, log)
	}
	return nil
}

// follow reads the output of the go command until it ends. It returns the lines that aren't names of packages.
func (b build) follow(output io.Reader) (log string) {
	var rest []string
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if b.estimate.compiling(b.component.Name, lines.Text()) {
			b.report()
		} else {
			rest = append(rest, lines.Text())
		}
	}
	return strings.TrimSpace(strings.Join(rest, "\n"))
}

// reporter returns a function that prints the progress if it has grown since the last time.
func (c Cache) reporter(e *estimate) func() {
	var mu sync.Mutex
	last := e.percent()
	return func() {
		mu.Lock()
		defer mu.Unlock()
		if percent := e.percent(); percent >= last+percentStep {
			last = percent
			c.Printf("  %s", e.summary(time.Now()))
		}
	}
}
