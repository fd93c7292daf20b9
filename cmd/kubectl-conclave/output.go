package main

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// Outputs for programs.
const (
	asJSON = "json"
	asYAML = "yaml"
)

// forPrograms are the outputs of a command whose default is text.
var forPrograms = []string{asJSON, asYAML}

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
