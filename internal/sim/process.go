package sim

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

type process struct {
	machine     *office.Machine
	exists      bool
	up          bool
	incarnation uint32
	// podGone is set while the process is down and its pod was deleted. If it restarts, then
	// in a new pod, without what the old one stored.
	podGone bool
	// diskLost is set while the process is down, and what it has stored is lost. rebooted is set while it is down because
	// of a power failure.
	diskLost, rebooted bool
	disk               disk
	// disks counts its disks, for their identities. granted is the term that it has granted last.
	disks uint8
	// retired is the identity that it has given up last.
	retired election.Identity
	granted election.Term
	// remembers is set if this incarnation remembered at its start what it had granted, and its tenures.
	remembers bool
	// removed is set when the process is down and no longer on the member list. It never restarts.
	removed bool
	// crashedSilently is set if the last crash did not reset the connections.
	crashedSilently bool
	downSince       election.Tick
	bootedAt        election.Tick
	// pausedUntil is the time at which a paused process resumes, 0 if it never was paused in this incarnation.
	pausedUntil election.Tick
	appDead     bool
	// slowBy is by how much the process handles an input too late, until slowUntil.
	slowBy, slowUntil election.Tick
	// wakeAt is the time of the earliest pending timer event, or Never.
	wakeAt election.Tick
	// roster is the list that it has adopted, at adoptedAt, and before the one that it had until then. Of those that the
	// operator has published, roster has the index slot. It votes since votesSince, which is Never while it is forgetful.
	roster, before        *election.Roster
	slot                  uint32
	adoptedAt, votesSince election.Tick
	// missedList: it has missed a list because the operator didn't know that it is connected.
	missedList bool
	clock      clock
	lease      leaseState
	mode       office.Mode
	policy     office.Policy
	// factor multiplies the heartbeat and the suspicion timeout. 0 stands for 1.
	factor election.Tick

	// running is set while the application acts as coordinator. It was last asked
	// to stop at stopRequestedAt, for the tenure of stopTerm.
	running         bool
	stopRequestedAt election.Tick
	stopTerm        election.Term
	// tenures counts the tenures of all incarnations. The last one began at tenureSince.
	tenures     uint32
	tenureSince election.Tick
	// stepsDownIn is the last tenure in which it was asked to step down.
	stepsDownIn uint32
	status      election.Status
	// lostTenureUntil is the end, on the process's clock, of the tenure that a crash cut short.
	lostTenureUntil election.Tick
}

// clock is the clock of one process. Its rate is in 1/65536 of the true rate.
type clock struct {
	rate   int64
	offset election.Tick
}

const trueRate = 1 << 16

// local returns the reading of the process's clock at the true time at.
func (c clock) local(at election.Tick) election.Tick {
	return c.offset + at*election.Tick(c.rate)/trueRate
}

// global returns the first true time at which the process's clock reads at least local.
func (c clock) global(local election.Tick) election.Tick {
	if local == election.Never {
		return election.Never
	}
	return ((local-c.offset)*trueRate + election.Tick(c.rate) - 1) / election.Tick(c.rate)
}

// priority returns a priority that no other process has.
func priority(id election.ID, level int) uint32 {
	return uint32(64*level) + uint32(id)
}
