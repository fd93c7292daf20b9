// Package output has what the commands of the plugin print: values for programs, and text without
// control characters.
package output

import (
	"encoding/json"
	"fmt"
	"io"

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
