package benchmark

import "fmt"

// Goal is a performance target and the measured value.
type Goal struct {
	What     string  `json:"what"`
	Unit     string  `json:"unit"`
	Measured float64 `json:"measured"`
	Limit    float64 `json:"limit"`
	Reached  bool    `json:"reached"`
}

// AtMost returns a goal that is reached if the measured value doesn't exceed the limit.
func AtMost(what, unit string, measured, limit float64) Goal {
	return Goal{What: what, Unit: unit, Measured: measured, Limit: limit, Reached: measured <= limit}
}

func (g Goal) String() string {
	verdict := "reached"
	if !g.Reached {
		verdict = "NOT REACHED"
	}
	return fmt.Sprintf("%s: %.3g %s, at most %.3g: %s", g.What, g.Measured, g.Unit, g.Limit, verdict)
}
