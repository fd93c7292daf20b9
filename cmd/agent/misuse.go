package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// misuse is bad input: what is wrong with it, and what would be right.
type misuse struct{ reason string }

func (e *misuse) Error() string { return e.reason }

func misused(format string, args ...any) error { return &misuse{reason: fmt.Sprintf(format, args...)} }

// noArguments refuses arguments that aren't flags, and names the subcommands.
func noArguments(cmd *cobra.Command, args []string) error {
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
		return misused("%s takes no argument %q", cmd.CommandPath(), args[0])
	}
	return misused("%s takes no argument %q: it has the commands %s", cmd.CommandPath(), args[0], strings.Join(names, ", "))
}

// explainFlag says in one line what is wrong with a flag, and what would be right.
func explainFlag(cmd *cobra.Command, err error) error {
	var (
		value   *pflag.InvalidValueError
		unknown *pflag.NotExistError
		missing *pflag.ValueRequiredError
	)
	switch {
	case errors.As(err, &value):
		if flag := value.GetFlag(); flag.Value.Type() == "int" {
			return misused("--%s must be a whole number such as 10, not %q", flag.Name, value.GetValue())
		}
	case errors.As(err, &missing):
		return misused("--%s needs a value", missing.GetFlag().Name)
	case errors.As(err, &unknown):
		return misused("%s: see %s --help for those that exist", err, cmd.CommandPath())
	}
	return misused("%s", err)
}
