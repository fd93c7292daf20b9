// Package program is for tests and benchmarks that run other programs. It makes Go's test cache aware of what those
// programs are built from, and it finds the agents of a cluster among the processes of this machine.
package program

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// DependOnProgram makes the calling test depend on everything that a program of the module is built from. Go's test
// cache tracks the imports of a test and the files and folders that the test itself opens. It doesn't track a program
// that the test builds, so a cached pass would survive a change to that program.
func DependOnProgram(ctx context.Context, module, program string) error {
	module, err := filepath.Abs(module)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "go", "list", "-deps", "-f", "{{if not .Standard}}{{.Dir}}{{end}}", program)
	command.Dir = module
	command.Env = append(os.Environ(), "GOWORK=off")
	output, err := command.Output()
	if err != nil {
		return fmt.Errorf("cannot list the dependencies of %s: %w", program, err)
	}
	for line := range strings.Lines(string(output)) {
		folder := strings.TrimSuffix(line, "\n")
		if !strings.HasPrefix(folder, module+string(filepath.Separator)) {
			continue // go.sum pins the other modules.
		}
		if _, err := os.ReadDir(folder); err != nil {
			return err
		}
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		if _, err := os.Stat(filepath.Join(module, file)); err != nil {
			return err
		}
	}
	return nil
}

// DependOnFolder makes the calling test depend on every file below a folder, for
// files that another process reads on behalf of the test.
func DependOnFolder(folder string) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	return filepath.WalkDir(folder, func(_ string, _ fs.DirEntry, err error) error { return err })
}
