// Package reliance tells Go's test cache what a test relies on beside its
// imports: the programs that it builds, and the files that others read for it.
// Without that, a test would pass from the cache although they have changed. The
// cache goes by the folders and files that a test itself has looked at.
package reliance

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// OnProgram looks at all that a program of the module is built from.
func OnProgram(ctx context.Context, module, program string) error {
	module, err := filepath.Abs(module)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "go", "list", "-deps", "-f", "{{if not .Standard}}{{.Dir}}{{end}}", program)
	command.Dir = module
	command.Env = append(os.Environ(), "GOWORK=off")
	said, err := command.Output()
	if err != nil {
		return fmt.Errorf("see what %s is built from: %w", program, err)
	}
	for line := range strings.Lines(string(said)) {
		folder := strings.TrimSuffix(line, "\n")
		if !strings.HasPrefix(folder, module+string(filepath.Separator)) {
			continue // It is of another module, and go.sum says which.
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

// OnFolder looks at all that is in a folder.
func OnFolder(folder string) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	return filepath.WalkDir(folder, func(_ string, _ fs.DirEntry, err error) error { return err })
}
