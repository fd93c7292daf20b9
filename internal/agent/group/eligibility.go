package group

import "time"

// Ineligibility is why this process may not be elected.
type Ineligibility uint8

// The reasons.
const (
	Eligible Ineligibility = iota
	NotMember
	NoPriority
	Excluded
	Leaving
	ProbeFails
	NoSession
	// SteppedDown: it has handed the office over on request, and doesn't take it back for a
	// while.
	SteppedDown

	// IneligibilityCount is the number of values.
	IneligibilityCount
)

// Label returns the reason in a word, for metrics.
func (i Ineligibility) Label() string {
	return [...]string{"", "not_member", "priority", "excluded", "leaving", "probe", "session", "stepped_down"}[i]
}

func (i Ineligibility) String() string {
	return [...]string{
		"", "it is not in the member list", "its priority is 0", "the operator has excluded it", "it is leaving the group",
		"the probe of its application fails", "no session is open, although its application has used one or one is required",
		"it has stepped down and waits",
	}[i]
}

// Ineligible returns why this process may not be elected. It never blocks.
func (g *Group) Ineligible() Ineligibility { return g.published.Load().ineligible }

// ineligible returns why this process may not be elected.
func (g *Group) ineligible() Ineligibility {
	a := &g.app
	switch {
	case a.eligible && g.machine.Eligible():
		return Eligible
	case !g.roster.Has(g.self):
		return NotMember
	case g.roster.Priority(g.self) == 0:
		return NoPriority
	case a.excluded:
		return Excluded
	case !a.healthy:
		return ProbeFails
	case a.requiresSession && len(a.sessions) == 0:
		return NoSession
	case a.leaving || !a.eligible:
		return Leaving
	}
	return SteppedDown
}

// ineligibilityChanged notes and logs a change of the reason why this process may not be elected.
func (g *Group) ineligibilityChanged(before, now Ineligibility) {
	switch {
	case before == now:
	case now == Eligible:
		g.ineligibleSince = time.Time{}
		g.cfg.Log.Info("became eligible")
	default:
		g.ineligibleSince = time.Now()
		g.cfg.Log.Info("not eligible", "reason", now.String())
	}
}
