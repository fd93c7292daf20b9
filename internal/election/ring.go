package election

// Ring is the state that the elections on a unidirectional ring share. A
// message goes only to the successor and round the ring only once. A process
// restarts an election whose outcome it doesn't receive in time.
type Ring struct {
	Process
	// Due is when the election that this process started or joined must be
	// over.
	Due Tick
	// OwnTerm is the term in which the process last put its own message on the
	// ring.
	OwnTerm Term
	// DeadCoordinator is the coordinator that is believed dead in this
	// process's election.
	DeadCoordinator ID
}

// NewRing returns the ring that a valid configuration describes.
func NewRing(c Config) (Ring, error) {
	p, err := NewProcess(c)
	return Ring{Process: p, Due: Never}, err
}

// Round returns how long an election may take: the longest one goes round three
// times, with each place skipped once.
func (r *Ring) Round() Tick { return 3 * Tick(r.Roster.Len()+1) * r.Timing.Hop }

// Forward sends a message to the successor. It reports false if the message has
// already been round the ring.
func (r *Ring) Forward(out *Output, m Message) bool { return r.forwardSkipping(out, m, 0) }

func (r *Ring) forwardSkipping(out *Output, m Message, skipped int) bool {
	if int(m.Hops) >= r.Roster.Len() {
		return false
	}
	m.Hops++
	m.To = r.Successor(skipped)
	r.Send(out, m)
	return true
}

// Skip sends a message that could not be delivered to the process after the one
// that doesn't respond.
func (r *Ring) Skip(m Message, out *Output) {
	if m.From != r.Self || !r.Roster.Has(m.To) || m.To == r.Self {
		out.Emit(Refused, m.Term, m.From)
		return
	}
	out.Emit(Skipped, m.Term, m.To)
	// The next place after the silent process, among those not suspected.
	skipped := 0
	for !r.Suspects.Has(m.To) && skipped < r.Roster.Len() && r.Successor(skipped) != m.To {
		skipped++
	}
	if !r.Suspects.Has(m.To) {
		skipped++
	}
	r.forwardSkipping(out, m, skipped)
}

// Begin starts an election of this process in a new term, or starts it again.
// It reports false if the process isn't eligible, no term is left, or the
// election belongs to a recovery that must end without an outcome.
func (r *Ring) Begin(in *Input, out *Output) bool {
	over := r.Recovering && in.Kind == TimePassed
	r.Recovering = r.NoPreemption && in.Kind == Recover
	if over || !r.Eligible() || !r.NextTerm(in.Term) {
		r.Due, r.Recovering = Never, false
		return false
	}
	r.OwnTerm, r.DeadCoordinator, r.Due = r.Term, in.Peer, in.Now+r.Round()
	out.Emit(Started, r.Term, in.Peer)
	return true
}

// RestartInput returns the input that starts the election again.
func (r *Ring) RestartInput(now Tick) Input {
	return Input{Kind: TimePassed, Peer: r.DeadCoordinator, Now: now}
}

// WaitForOutcome waits for the outcome of an election that another process started.
func (r *Ring) WaitForOutcome(dead ID, now Tick) {
	if r.Due == Never && r.Eligible() {
		r.DeadCoordinator, r.Due = dead, now+2*r.Round()
	}
}

// HandleRing handles the inputs that every election on a ring handles in the
// same way.
func (r *Ring) HandleRing(in *Input, out *Output) {
	if in.Kind == Undelivered {
		r.Skip(in.Message, out)
		return
	}
	if in.Kind == Suspect && in.Ineligible {
		return // "the control part of a failed process" still forwards ([Textbook])
	}
	r.HandleCommon(in, out)
	if in.Kind == Follow && in.Peer != None {
		r.Due = Never
	}
	if !r.Eligible() {
		r.OwnTerm = 0 // ignore its own messages when they come back
		if !r.Recovering {
			r.Due = Never
		}
	}
}

// HandleAnnouncement records the announced outcome and forwards the
// announcement, unless it has come back to its origin.
func (r *Ring) HandleAnnouncement(m *Message, out *Output) {
	r.RecordOutcome(m.Subject, m.Term, out)
	if m.Origin != r.Self {
		r.Forward(out, *m)
	}
}

// ObserveTerm adopts the newer term of a message. That ends an election or a
// tenure of this process.
//
// A message that only shows that there is a newer term gives the process a
// reason to wait for the outcome of that term's election. It must not start an
// election in a yet newer term at once. For example, consider two processes
// that each start an election. If each restarted as soon as it saw the other's
// term, the two could overtake each other forever.
func (r *Ring) ObserveTerm(m *Message, now Tick) {
	if m.Term <= r.Term {
		return
	}
	waits := m.Kind == Stale && (r.Due != Never || r.Coordinator == r.Self)
	r.Term, r.Due = m.Term, Never
	if waits {
		r.Due = now + r.Round()
	}
	r.Recovering = r.Recovering && waits
}

// RecordOutcome records the outcome of an election, unless a higher process was
// announced in the same term.
func (r *Ring) RecordOutcome(id ID, term Term, out *Output) {
	if !r.Roster.Has(id) || r.KnowsCoordinatorOf(term) && r.Roster.Outranks(r.Coordinator, id) {
		return
	}
	r.Due, r.Recovering = Never, false
	r.Recognize(id, term, out)
}

// RingStatus returns what the process knows.
func (r *Ring) RingStatus() Status {
	return Status{Coordinator: r.Coordinator, Term: r.Term, Electing: r.Due != Never}
}

// CloneRing returns an independent copy.
func (r *Ring) CloneRing() Ring {
	c := *r
	c.Process = r.CloneProcess()
	return c
}

// EncodeRing appends the state to b.
func (r *Ring) EncodeRing(b []byte, now Tick) []byte {
	b = r.EncodeProcess(b)
	b = AppendMoment(b, r.Due, now)
	b = AppendNumber(b, uint64(r.OwnTerm))
	return AppendNumber(b, uint64(r.DeadCoordinator))
}
