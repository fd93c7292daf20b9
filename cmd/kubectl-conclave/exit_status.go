package main

import (
	"errors"
	"fmt"

	"github.com/conclave-dev/conclave/internal/cli/command"
	"github.com/conclave-dev/conclave/internal/sim"
)

// exitInterrupted is the exit status that shells report for SIGINT.
const exitInterrupted = 130

// violationError reports that schedules violated an invariant.
type violationError struct {
	violated, schedules int
	replay              string
}

func (e *violationError) Error() string {
	return fmt.Sprintf("%d of %d schedules violated an invariant; to replay the first one, run: %s", e.violated, e.schedules, e.replay)
}

// errInterrupted ends a run that the user interrupted.
var errInterrupted = errors.New("interrupted")

func exitStatus(err error) int {
	var (
		usage    *command.UsageError
		scenario *sim.InputError
	)
	switch {
	case err == nil:
		return command.ExitOK
	case errors.As(err, &usage), errors.As(err, &scenario):
		return command.ExitUsage
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	}
	return command.ExitFailure
}
