package agentcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// Build builds the agent into a folder and returns the path of the binary. It finds the
// module by searching upwards from the working directory.
func Build(ctx context.Context, folder string, race bool) (string, error) {
	top, err := moduleRoot()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(folder, "conclave-agent")
	arguments := []string{"build", "-o", binary}
	// Without the race detector, build the agent as releases do.
	cgo := "CGO_ENABLED=0"
	if race {
		arguments, cgo = append(arguments, "-race"), "CGO_ENABLED=1"
	}
	command := exec.CommandContext(ctx, "go", append(arguments, "./cmd/agent")...)
	command.Dir = top
	command.Env = append(os.Environ(), cgo, "GOWORK=off")
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build the agent: %w\n%s", err, output)
	}
	return binary, nil
}

func moduleRoot() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; folder = filepath.Dir(folder) {
		_, err := os.Stat(filepath.Join(folder, "go.mod"))
		if err == nil {
			return folder, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if folder == filepath.Dir(folder) {
			return "", errors.New("no go.mod above the working directory: run it inside the repository")
		}
	}
}
