package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conclave-dev/conclave/internal/sim"
)

// What the command's exit status says.
const (
	exitDone        = 0
	exitFailed      = 1 // a promise was broken, or something else went wrong
	exitMisused     = 2
	exitInterrupted = 130
)

// misuse is bad input: what is wrong with it, and what would be right.
type misuse struct{ reason string }

func (e *misuse) Error() string { return e.reason }

func misused(format string, args ...any) error { return &misuse{reason: fmt.Sprintf(format, args...)} }

// broken is a promise that schedules broke.
type broken struct {
	violated, schedules int
	replay              string
}

func (e *broken) Error() string {
	return fmt.Sprintf("%d of %d schedules broke a promise; see the first one with: %s", e.violated, e.schedules, e.replay)
}

// interrupted is a run that the user ended.
type interrupted struct{}

func (*interrupted) Error() string { return "interrupted" }

func exitStatus(err error) int {
	var (
		use     *misuse
		input   *sim.BadScenario
		stopped *interrupted
	)
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &use), errors.As(err, &input):
		return exitMisused
	case errors.As(err, &stopped):
		return exitInterrupted
	}
	return exitFailed
}

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

// wanted says what a flag of a type takes.
var wanted = map[string]string{
	"int":      "a whole number such as 10",
	"uint64":   "a whole number, 0 or above",
	"uint32":   "a whole number, 0 or above",
	"duration": "a duration such as 5ms or 1s",
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
		flag := value.GetFlag()
		if want := wanted[flag.Value.Type()]; want != "" {
			return misused("--%s must be %s, not %q", flag.Name, want, value.GetValue())
		}
	case errors.As(err, &missing):
		return misused("--%s needs a value", missing.GetFlag().Name)
	case errors.As(err, &unknown):
		return misused("%s: see %s --help for those that exist", err, cmd.CommandPath())
	}
	return misused("%s", err)
}
