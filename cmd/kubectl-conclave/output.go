package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Outputs for programs.
const (
	asJSON = "json"
	asYAML = "yaml"
)

// forPrograms are the outputs of a command whose default is text.
var forPrograms = []string{asJSON, asYAML}

// addOutput adds the flag for the output of a command whose default is text.
func addOutput(cmd *cobra.Command, output *string, usage string) {
	cmd.Flags().StringVarP(output, "output", "o", "", usage)
	completeFrom(cmd, "output", forPrograms)
}

// checkOptionalOutput is checkOutput for the flag of addOutput.
func checkOptionalOutput(output *string) error {
	if *output == "" {
		return nil
	}
	return checkOutput(output, forPrograms)
}

// writeValue writes a value as one line of JSON, or as a YAML document.
func writeValue(w io.Writer, value any, output string) error {
	if output == asJSON {
		return json.NewEncoder(w).Encode(value)
	}
	text, err := yaml.Marshal(value)
	if err != nil {
		return fmt.Errorf("cannot encode the output: %w", err)
	}
	_, err = fmt.Fprintf(w, "---\n%s", text)
	return err
}
