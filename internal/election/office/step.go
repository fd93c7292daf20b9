package office

import "github.com/conclave-dev/conclave/internal/election"

// This file lists what each role does with the inputs that the roles handle differently, and with its timers.

// stepRole passes an input to the step function of the role.
func (m *Machine) stepRole(in *election.Input, out *election.Output) {
	switch m.role {
	case Follower:
		m.stepFollower(in, out)
	case Candidate:
		m.stepCandidate(in, out)
	case Holder:
		m.stepHolder(in, out)
	case Draining:
		m.stepDraining(in, out)
	}
}

func (m *Machine) stepFollower(in *election.Input, out *election.Output) {
	switch in.Kind {
	case election.Receive:
		if in.Message.Kind == election.Beat {
			m.handleBeat(&in.Message, out)
		}
	case election.BecomeIneligible:
		m.becomeIneligible(applicationDead, out)
	case election.StepDown:
		m.refuseStepDown(in.Peer, out)
	default:
	}
}

func (m *Machine) tickFollower(out *election.Output) {
	if m.now >= m.probes.at {
		m.cause = "probe"
		m.probe(out)
	}
	m.cause = "reachability"
	m.updateReachability(out)
	if m.role == Follower && m.now >= m.vacancy.campaignAt {
		m.cause = "campaign"
		m.campaign(out)
	}
}

func (m *Machine) stepCandidate(in *election.Input, out *election.Output) {
	msg := &in.Message
	switch in.Kind {
	case election.Receive:
		switch msg.Kind {
		case election.Beat:
			if !msg.Hold.Held && msg.Term > m.term && m.roster.Outranks(msg.From, m.cfg.Self) {
				// In the same term that wouldn't help the sender: a member that granted this process grants no other in that term.
				m.abandonClaim(out)
			}
			m.handleBeat(msg, out)
		case election.Grant:
			m.countGrant(msg, out)
		case election.Deny:
			m.countRefusal(msg, out)
		default:
		}
	case election.BecomeIneligible:
		m.becomeIneligible(applicationDead, out)
		m.abandonClaim(out)
	case election.StepDown:
		m.refuseStepDown(in.Peer, out)
	default:
	}
}

func (m *Machine) tickCandidate(out *election.Output) {
	if m.now >= m.beatAt {
		m.cause = "heartbeat"
		m.heartbeat(out)
	}
	if m.role == Candidate {
		m.cause = "reachability"
		m.updateReachability(out)
	}
}

func (m *Machine) stepHolder(in *election.Input, out *election.Output) {
	if in.Kind == election.StepDown {
		m.stepDown(in.Peer, out)
		return
	}
	m.stepTenure(in, out)
}

func (m *Machine) stepDraining(in *election.Input, out *election.Output) {
	switch in.Kind {
	case election.Stopped:
		if in.Term == m.term {
			m.resign(out)
		}
	case election.StepDown:
		m.refuseStepDown(in.Peer, out)
	default:
		m.stepTenure(in, out)
	}
}

func (m *Machine) tickDraining(out *election.Output) {
	if m.now >= m.tenure.drainUntil {
		m.cause = "drain timeout"
		m.resign(out)
	}
	m.tickTenure(out)
}

// stepTenure is what a holder and a draining process have in common.
func (m *Machine) stepTenure(in *election.Input, out *election.Output) {
	msg := &in.Message
	switch in.Kind {
	case election.Receive:
		switch msg.Kind {
		case election.Beat:
			m.handleBeat(msg, out)
		case election.Grant:
			m.countGrant(msg, out)
		case election.Deny:
			m.raiseTerm(msg, out)
		default:
		}
	case election.BecomeIneligible: // The application is dead: there is nothing to wait for.
		m.becomeIneligible(applicationDead, out)
		m.resign(out)
	default:
	}
}

// tickTenure is what a holder and a draining process have in common.
func (m *Machine) tickTenure(out *election.Output) {
	if m.now >= m.beatAt {
		m.cause = "heartbeat"
		m.measureAge()
		m.heartbeat(out)
	}
}
