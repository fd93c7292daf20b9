package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// newInstall returns the command by which the webhook puts the agent's binary beside the program of another image.
func newInstall() *cobra.Command {
	return &cobra.Command{
		Use:    "install FILE",
		Short:  "Copy this binary to a file",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, arguments []string) error { return install(arguments[0]) },
	}
}

// install replaces the file, which may be running.
func install(path string) error {
	binary, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("cannot read the binary of this process: %w", err)
	}
	defer binary.Close()
	temporary := path + ".new"
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, binary)
	if err = errors.Join(err, file.Chmod(0o755), file.Close()); err == nil { // Whatever the umask is.
		err = os.Rename(temporary, path)
	}
	return err
}
