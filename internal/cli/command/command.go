// Package command is what our commands have in common: how bad input is refused,
// in one line that says what would be right, and which version this is.
package command

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// What an exit status says. Commands may have others besides.
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 2
)

// UsageError is bad input: what is wrong with it, and what would be right.
type UsageError struct{ reason string }

func (e *UsageError) Error() string { return e.reason }

// UsageErrorf is a UsageError.
func UsageErrorf(format string, args ...any) error {
	return &UsageError{reason: fmt.Sprintf(format, args...)}
}

// NoArguments refuses arguments that aren't flags, and names the subcommands.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			names = append(names, c.Name())
		}
	}
	if len(names) == 0 {
		return UsageErrorf("%s takes no argument %q", cmd.CommandPath(), args[0])
	}
	return UsageErrorf("%s takes no argument %q: it has the commands %s", cmd.CommandPath(), args[0], strings.Join(names, ", "))
}

// wanted says what a flag of a type takes.
var wanted = map[string]string{
	"int":      "a whole number such as 10",
	"uint64":   "a whole number, 0 or above",
	"uint32":   "a whole number, 0 or above",
	"duration": "a duration such as 5ms or 1s",
	"bool":     "true or false",
}

// ExplainFlag says in one line what is wrong with a flag, and what would be right.
func ExplainFlag(cmd *cobra.Command, err error) error {
	var (
		value   *pflag.InvalidValueError
		unknown *pflag.NotExistError
		missing *pflag.ValueRequiredError
	)
	switch {
	case errors.As(err, &value):
		flag := value.GetFlag()
		want := wanted[flag.Value.Type()]
		switch {
		case want == "":
		case errors.Is(err, strconv.ErrRange):
			return UsageErrorf("--%s must be %s, and %s is out of range", flag.Name, want, value.GetValue())
		default:
			return UsageErrorf("--%s must be %s, not %q", flag.Name, want, value.GetValue())
		}
	case errors.As(err, &missing):
		return UsageErrorf("--%s needs a value", missing.GetFlag().Name)
	case errors.As(err, &unknown):
		return UsageErrorf("%s: see %s --help for those that exist", err, cmd.CommandPath())
	}
	return UsageErrorf("%s", err)
}

// Version says which version this is: the one that make build has stamped, or
// that of the module where go install built the command.
func Version(stamped string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which version this is",
		Args:  NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), cmp.Or(stamped, builtFrom()))
			return err
		},
	}
}

func builtFrom() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
