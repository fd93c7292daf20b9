package transcript

import "github.com/conclave-dev/conclave/internal/journal"

// Letter and the functions below are for the tests, which are in another package because they use package sim.
type Letter = letter

var (
	Cut         = cut
	LetterOf    = letterOf
	Received    = received
	Recognition = recognition
	Loss        = func(p *part) *journal.Step { return p.lost }
)
