package main

import (
	"errors"

	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/plugin/check"
	"github.com/conclave-dev/conclave/internal/plugin/status"
	"github.com/conclave-dev/conclave/internal/sim"
)

// exitInterrupted is the exit status that shells report for SIGINT.
const exitInterrupted = 130

// exitProblem is the exit status of check, and of status --exit-code, if there is a problem.
const exitProblem = 3

func exitStatus(err error) int {
	var (
		usage    *command.UsageError
		problem  *status.ProblemError
		findings *check.FindingsError
		scenario *sim.InputError
	)
	switch {
	case err == nil:
		return command.ExitOK
	case errors.As(err, &usage), errors.As(err, &scenario):
		return command.ExitUsage
	case errors.As(err, &problem), errors.As(err, &findings):
		return exitProblem
	case errors.Is(err, command.ErrInterrupted):
		return exitInterrupted
	}
	return command.ExitFailure
}
