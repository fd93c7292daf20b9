package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// addRun lets the root command run the agent.
func addRun(root *cobra.Command) {
	var path string
	root.RunE = func(*cobra.Command, []string) error {
		if _, err := load(path); err != nil {
			return err
		}
		return errors.New("running comes next")
	}
	addConfig(root, &path)
}
