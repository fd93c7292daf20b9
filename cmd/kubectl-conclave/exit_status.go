package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/conclave-dev/conclave/internal/command"
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

// exitProblem is the exit status of check, and of status --exit-code, if there is a problem.
const exitProblem = 3

// problemError reports that groups have problems, which the output describes.
type problemError struct{ groups []string }

func (e *problemError) Error() string {
	return "these groups have problems: " + strings.Join(e.groups, ", ")
}

// errInterrupted ends a run that the user interrupted.
var errInterrupted = errors.New("interrupted")

func exitStatus(err error) int {
	var (
		usage    *command.UsageError
		problem  *problemError
		findings *findingsError
		scenario *sim.InputError
	)
	switch {
	case err == nil:
		return command.ExitOK
	case errors.As(err, &usage), errors.As(err, &scenario):
		return command.ExitUsage
	case errors.As(err, &problem), errors.As(err, &findings):
		return exitProblem
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	}
	return command.ExitFailure
}
