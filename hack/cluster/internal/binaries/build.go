package binaries

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// reportInterval is the number of compiled packages between two lines of progress.
const reportInterval = 200

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

// list returns the import paths of the packages that a component consists of, and downloads their modules.
func (c Cache) list(ctx context.Context, component Component) (map[string]bool, error) {
	arguments := append([]string{"list", "-deps", "-tags", component.Tags}, component.Packages...)
	var log strings.Builder
	command := c.command(ctx, component, arguments...)
	command.Stderr = &log
	output, err := command.Output()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("interrupted while listing the packages of %s", component.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list the packages of %s: %w\n%s", component.Name, err, strings.TrimSpace(log.String()))
	}
	packages := map[string]bool{}
	for path := range strings.FieldsSeq(string(output)) {
		packages[path] = true
	}
	return packages, nil
}

// run runs "go build" and reports how many packages it has compiled.
func (c Cache) run(ctx context.Context, component Component, folder string) error {
	packages, err := c.list(ctx, component)
	if err != nil {
		return err
	}
	goMod, err := os.ReadFile(filepath.Join(c.Root, component.Module, "go.mod"))
	if err != nil {
		return fmt.Errorf("cannot read the sources of %s: %w", component.Name, err)
	}
	target := filepath.Join(folder, component.Output)
	if component.Output == "" {
		target += string(filepath.Separator) // The go command then writes all programs into the folder.
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
	log := c.follow(component, packages, stderr)
	if err := command.Wait(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted while building %s; the next build continues there", component.Name)
		}
		return fmt.Errorf("cannot build %s: %w\n%s", component.Name, err, log)
	}
	return nil
}

// follow reads the output of the go command, which prints the name of each package that isn't in its build cache. It returns the
// other lines.
func (c Cache) follow(component Component, packages map[string]bool, output io.Reader) (log string) {
	compiled := 0
	var rest []string
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if !packages[lines.Text()] {
			rest = append(rest, lines.Text())
			continue
		}
		if compiled++; compiled%reportInterval == 0 {
			c.Printf("  %s: compiled %d of at most %d packages", component.Name, compiled, len(packages))
		}
	}
	return strings.TrimSpace(strings.Join(rest, "\n"))
}
