// Package command has what Conclave's commands share: usage errors, which are one
// line that states what is correct, and the version.
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit statuses. Commands may define more.
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 2
)

// UsageError describes invalid input and states what is correct.
type UsageError struct{ reason string }

func (e *UsageError) Error() string { return e.reason }

// UsageErrorf formats a UsageError.
func UsageErrorf(format string, args ...any) error {
	return &UsageError{reason: fmt.Sprintf(format, args...)}
}

// Execute runs a command and returns its exit status. It prints an error in one line on stderr.
func Execute(ctx context.Context, root *cobra.Command) int {
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	fmt.Fprintln(root.ErrOrStderr(), "error:", err)
	if use := (*UsageError)(nil); errors.As(err, &use) {
		return ExitUsage
	}
	return ExitFailure
}

// NoArguments refuses positional arguments. The error lists the subcommands, if there are any.
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
		return UsageErrorf("%s accepts no arguments, got %q", cmd.CommandPath(), args[0])
	}
	return UsageErrorf("unknown command %q for %s%s; available commands: %s", args[0], cmd.CommandPath(),
		DidYouMean(args[0], names), strings.Join(names, ", "))
}

// validValues describes the valid values of a flag by its type.
var validValues = map[string]string{
	"int":      "a whole number such as 10",
	"uint64":   "a whole number, 0 or above",
	"uint32":   "a whole number, 0 or above",
	"duration": "a duration such as 5ms or 1s",
	"bool":     "true or false",
}

// ExplainFlag turns an error of pflag into a UsageError.
func ExplainFlag(cmd *cobra.Command, err error) error {
	var (
		value   *pflag.InvalidValueError
		unknown *pflag.NotExistError
		missing *pflag.ValueRequiredError
	)
	switch {
	case errors.As(err, &value):
		flag := value.GetFlag()
		want := validValues[flag.Value.Type()]
		switch {
		case want == "":
		case errors.Is(err, strconv.ErrRange):
			return UsageErrorf("--%s must be %s, and %s is out of range", flag.Name, want, value.GetValue())
		default:
			return UsageErrorf("--%s must be %s, got %q", flag.Name, want, value.GetValue())
		}
	case errors.As(err, &missing):
		return UsageErrorf("--%s requires a value", missing.GetFlag().Name)
	case errors.As(err, &unknown):
		return UsageErrorf("%s%s; for the flags, run: %s --help", err,
			DidYouMean("--"+unknown.GetSpecifiedName(), flagNames(cmd)), cmd.CommandPath())
	}
	return UsageErrorf("%s", err)
}

// flagNames returns the flags that help texts mention.
func flagNames(cmd *cobra.Command) (names []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	})
	return names
}

// Version returns the version command.
func Version(built string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), BuildVersion(built))
			return err
		},
	}
}

// BuildVersion returns the version that make build sets, or that of the module if go install built the command.
func BuildVersion(built string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return cmp.Or(built, info.Main.Version)
	}
	return cmp.Or(built, "unknown")
}

// singleLineError is an error whose text has no line breaks.
type singleLineError struct {
	text string
	err  error
}

func (e *singleLineError) Error() string { return e.text }
func (e *singleLineError) Unwrap() error { return e.err }

// SingleLine joins the lines of an error's text.
func SingleLine(err error) error {
	text := err.Error()
	if joined := strings.Join(strings.Fields(text), " "); joined != text {
		return &singleLineError{joined, err}
	}
	return err
}
