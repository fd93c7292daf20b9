package benchmark

import "fmt"

// Goal is a performance target and the measured value.
type Goal struct {
	What, Unit      string
	Measured, Limit float64
}

// AtMost returns a goal that is reached if the measured value doesn't exceed the limit.
func AtMost(what, unit string, measured, limit float64) Goal {
	return Goal{what, unit, measured, limit}
}

func (g Goal) String() string {
	verdict := "reached"
	if g.Measured > g.Limit {
		verdict = "NOT REACHED"
	}
	return fmt.Sprintf("%s: %.3g %s, at most %.3g: %s", g.What, g.Measured, g.Unit, g.Limit, verdict)
}
