package command

import (
	"github.com/spf13/cobra"
)

// InOrder makes shells propose the given values in this order, and no files.
const InOrder = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder

// CompleteFrom proposes the given values.
func CompleteFrom(cmd *cobra.Command, flag string, values []string) {
	CompleteWith(cmd, flag, cobra.FixedCompletions(values, InOrder))
}

// CompleteFile makes shells propose files, which they don't by default.
func CompleteFile(cmd *cobra.Command, flag string) {
	CompleteWith(cmd, flag, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault))
}

// CompleteWith completes the value of a flag by a function.
func CompleteWith(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // The flag doesn't exist.
	}
}
