package main

import (
	"errors"
	"fmt"

	"github.com/conclave-dev/conclave/internal/cli/command"
	"github.com/conclave-dev/conclave/internal/sim"
)

// exitInterrupted is what shells say of a command that was interrupted. That a
// promise was broken is a failure.
const exitInterrupted = 130

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
		use     *command.UsageError
		input   *sim.InputError
		stopped *interrupted
	)
	switch {
	case err == nil:
		return command.ExitOK
	case errors.As(err, &use), errors.As(err, &input):
		return command.ExitUsage
	case errors.As(err, &stopped):
		return exitInterrupted
	}
	return command.ExitFailure
}
