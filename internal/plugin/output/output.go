// Package output has what the commands of the plugin print: values for programs, and text without control characters.
package output

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/command"
)

// Formats of outputs. JSON and YAML are for programs.
const (
	JSON       = "json"
	YAML       = "yaml"
	Text       = "text"
	Table      = "table"
	Transcript = "transcript"
	Mermaid    = "mermaid"
)

// forPrograms are the formats of a command whose default is text.
var forPrograms = []string{JSON, YAML}

// AddFlag adds the flag for the format of a command whose default is text.
func AddFlag(cmd *cobra.Command, format *string, usage string) {
	cmd.Flags().StringVarP(format, "output", "o", "", usage)
	command.CompleteFrom(cmd, "output", forPrograms)
}

// Choose replaces a format, in any case, by its name.
func Choose(format *string, formats []string) (err error) {
	*format, err = command.Choose("output", *format, formats)
	return err
}

// ChooseOptional is Choose for the flag of AddFlag.
func ChooseOptional(format *string) error {
	if *format == "" {
		return nil
	}
	return Choose(format, forPrograms)
}

// Write writes a value as one line of JSON, or as a YAML document.
func Write(w io.Writer, value any, format string) error {
	if format == JSON {
		return json.NewEncoder(w).Encode(value)
	}
	text, err := yaml.Marshal(value)
	if err != nil {
		return fmt.Errorf("cannot encode the output: %w", err)
	}
	_, err = fmt.Fprintf(w, "---\n%s", text)
	return err
}

// CreateFile creates the file that a flag names, and writes it. Whatever goes wrong, and if the user interrupts the
// command, it removes the file: half of it would look like a whole one.
func CreateFile(ctx context.Context, flag, path string, write func(context.Context, io.Writer) error) (err error) {
	ctx, stop := command.UntilInterrupted(ctx)
	defer stop()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return command.UsageErrorf("%s exists already: remove it, or name another file with --%s", path, flag)
	} else if err != nil {
		return fmt.Errorf("cannot create the file: %w", err)
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	if err := write(ctx, file); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return command.ErrInterrupted
	}
	return nil
}
