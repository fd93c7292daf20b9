package control

import "slices"

// EndCause is why a tenure ended. Agents send each other its number, so the numbers never change.
type EndCause uint8

// The causes.
const (
	// EndNone: no tenure has ended, because the agent has just started. As the cause of a resignation, it is unknown.
	EndNone EndCause = iota
	// EndCrash: the process of the coordinator ended.
	EndCrash
	// EndSilence: no heartbeat of the coordinator arrived for the suspicion timeout.
	EndSilence
	// EndHandOver: the coordinator resigned, for a reason that is none of those below, or that the agent doesn't know.
	EndHandOver

	// Of the following causes, the others know only what the coordinator told them when it resigned.

	// EndLapse: the coordinator couldn't renew its lease.
	EndLapse
	// EndMembership: the member list changed. This the others may know by themselves.
	EndMembership
	// EndStepDown: a user requested it.
	EndStepDown
	// EndPreempted: a member of higher priority was ready.
	EndPreempted
	// EndExcluded: the operator has excluded the coordinator: its node is cordoned, or its pod is being deleted.
	EndExcluded
	// EndSessionClosed: the coordinator's application closed its session, or ended.
	EndSessionClosed
	// EndNotRenewed: the session of the coordinator's application wasn't renewed in time: the application or the agent
	// was paused.
	EndNotRenewed
	// EndProbeFailed: the probe of the coordinator's application failed.
	EndProbeFailed
	// EndStopped: the coordinator's agent was told to end.
	EndStopped

	// EndUnknown: the agent learned of the end only from the next coordinator. It is above all others, and in no message
	// between agents.
	EndUnknown
)

var endCauses = []string{
	"start", "crash", "silence", "hand-over", "lapse", "membership", "step-down", "preempted", "excluded",
	"session-closed", "not-renewed", "probe-failed", "stopped", "unknown",
}

func (c EndCause) String() string { return endCauses[min(c, EndUnknown)] }

// MarshalText returns the name of a cause.
func (c EndCause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText accepts any text: a newer agent may have other causes.
func (c *EndCause) UnmarshalText(text []byte) error {
	*c = EndUnknown
	if i := slices.Index(endCauses, string(text)); i >= 0 {
		*c = EndCause(i) //nolint:gosec // There are few.
	}
	return nil
}
