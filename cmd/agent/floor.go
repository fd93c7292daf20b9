package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

func newFloor() *cobra.Command {
	return &cobra.Command{
		Use:   "floor",
		Short: "Print the floor of a list with departed members: its terms are higher",
		Long: `Print the floor of a list with departed members: its terms are higher.

Stop the departed members first. Then run this command once, on any machine whose
clock is right, and write the number into the files of all agents. No process has
used a higher term yet: the number is the current time plus the accepted
difference between clocks, in units of 40 ms since 2026-01-01, with 4 bits for the
elections in each unit.`,
		Example: `  conclave-agent floor`,
		Args:    command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), control.NextFloor(0, time.Now()))
			return err
		},
	}
}
