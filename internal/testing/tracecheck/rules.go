package tracecheck

import (
	"cmp"
	"hash/maphash"
	"slices"
)

// mayGrant returns the rule that forbids a grant, or "".
func (p *process) mayGrant(to life, r request, now int64) string {
	v := p.voter
	same := v.to == to
	switch {
	case !p.isVoter():
		return "FORGETFUL_GRANTS"
	case now < v.quiet:
		return "NO_QUIET_AFTER_RESTART"
	case r.version < max(p.list.Version, v.adopted):
		return "GRANT_OLD_LIST"
	case !same && now < v.until:
		return "GRANT_TWICE"
	case same && r.term < v.term:
		return "GRANT_LATE_REQUEST"
	case !r.held && r.term <= v.highest && !(same && r.term == v.term):
		return "GRANT_ANY_TERM"
	case !r.held && r.term > v.reserved:
		return "GRANT_ABOVE_RESERVATION"
	}
	return ""
}

// supported returns until when the grants suffice, with the grant of the process itself until own.
func (p *process) supported(own, now int64) int64 {
	until := func(id uint32) int64 {
		if id == p.id {
			return own
		}
		if at, granted := p.votes[id]; granted {
			return at
		}
		return never
	}
	ends := p.list.majority(until)
	if !p.isSettled(now) {
		ends = min(ends, p.list.Previous.majority(func(id uint32) int64 {
			if !p.list.continues(id) {
				return never
			}
			return until(id)
		}))
	}
	return max(ends, p.earlier)
}

// relyUntil checks that the grants suffice until a moment. If they do so only with the grant of the process itself, it
// has promised that.
func (p *process) relyUntil(until, now int64) {
	v, own, request := p.voter, int64(never), request{p.claim, p.token != 0, p.list.Version}
	if v.to == p.self && v.term == p.claim {
		own = v.until
	}
	if until <= p.supported(own, now) {
		return
	}
	rule := p.mayGrant(p.self, request, now)
	p.must(rule == "", rule, "holds the office until %d, for which it needs its own grant", until)
	ends := p.supported(max(now+lasts(p.Lease), p.own), now)
	p.must(until <= ends, "HOLD", "holds the office until %d, and its grants last until %d", until, ends)
	v.grant(p.self, request, until)
}

// take checks a step.
func (p *process) take(s *step, at int64) error {
	now := p.origin + s.Now
	p.checker.Steps++
	if s.Names != nil {
		p.names = s.Names
	}
	if s.Settings != nil {
		if p.mayGrant(p.self, request{p.claim, p.token != 0, p.list.Version}, now) == "" {
			p.own = now + lasts(p.Lease)
		}
		p.settings = *s.Settings
		p.checker.allStrict = p.checker.allStrict && p.Mode == strict
	}
	p.must(!p.checker.ended[p.self], "LIFE_ENDED", "takes a step after its end was known")
	p.input(s, now)
	for _, e := range s.Events {
		if p.token != 0 && e.ends(p.claim) { // This releases its own grant before it grants others.
			p.voter.release(p.self, e.Term, false, now)
		}
	}
	for i := range s.Send {
		p.send(s, &s.Send[i], now)
	}
	for _, e := range s.Events {
		p.begin(s, e.Term, now)
		if e.ends(p.claim) {
			p.claim, p.token = 0, 0
		}
	}
	p.observe(s, at, now)
	return p.err
}

func (p *process) input(s *step, now int64) {
	switch s.Kind {
	case adopt:
		p.useList(s.Roster)
		p.voter.adopt(p.list.Version)
	case reserved:
		p.voter.reserved = max(p.voter.reserved, s.Term)
	case ended:
		p.checker.end(life{p.name(s.Peer), s.Life}, now, p)
	case receive:
		if s.Message.Kind >= beat {
			p.receive(&s.Message, now)
		}
	}
}

func (p *process) receive(m *message, now int64) {
	from := life{p.name(m.From), m.Hold.Life}
	if p.checker.processes[from] != nil {
		p.must(p.checker.sent[p.hash(m)], "ARRIVES", "receives what %s hasn't sent: %+v", from.name, *m)
	}
	switch {
	case m.Kind == resigned:
		p.voter.release(from, m.Term, m.Hold.Held, now)
	case p.Mode == available:
	case m.Kind == beat:
		p.requests[key{from, m.Term, m.Hold.Sent}] = request{m.Term, m.Hold.Held, m.Hold.Version}
		p.settled = p.settled || m.Hold.Settled && m.Hold.Version == p.list.Version
	case m.Kind != probe || m.Hold.Held:
		p.recordAdoption(m.From, m.Hold.Version)
		if m.Kind == grant && m.Term == p.claim && m.Hold.RequesterLife == p.self.number {
			until := min(p.origin+m.Hold.Sent, now) + lasts(min(cmp.Or(m.Hold.Lease, p.Lease), p.Lease))
			if at, granted := p.votes[m.From]; !granted || at < until {
				p.votes[m.From] = until
			}
		}
	}
}

// hash identifies a message by the names of sender and receiver.
func (p *process) hash(m *message) uint64 {
	same := *m
	same.From, same.To = 0, 0
	if p.Mode == available || m.Kind != beat && m.Kind != grant {
		same.Hold.Lease = 0 // An agent that receives no lease assumes the configured one.
	}
	return maphash.Comparable(p.checker.seed, struct {
		from, to string
		message
	}{p.name(m.From), p.name(m.To), same})
}

func (p *process) send(s *step, m *message, now int64) {
	if m.Kind < beat {
		return
	}
	p.checker.sent[p.hash(m)] = true
	switch {
	case m.Kind == beat:
		p.sendBeat(s, m, now)
	case m.Kind == resigned:
		p.begin(s, m.Term, now)
		silent := p.Mode == available && p.claim == 0 // It may have waited for its disk until now.
		last := max(p.claim, p.checker.claimed[p.self])
		p.must(m.Term == last || silent, "RESIGN", "resigns in term %d, not %d", m.Term, last)
		p.must(!m.Hold.Held || p.token == 0, "ABANDON_TENURE", "gives up a tenure as if it was a claim")
		p.claim, p.token, p.checker.claimed[p.self] = 0, 0, max(last, m.Term)
		p.voter.release(p.self, m.Term, m.Hold.Held, now)
	case p.Mode == available, m.Kind == probe && !m.Hold.Held:
	default:
		p.answer(m, now)
	}
}

func (p *process) sendBeat(s *step, m *message, now int64) {
	if m.Hold.Held {
		p.begin(s, m.Term, now)
	} else if m.Term != p.claim {
		p.open(m.Term)
	}
	p.must(m.Term == p.claim && (!m.Hold.Held || p.token != 0), "HELD", "sends a BEAT of term %d, not its own", m.Term)
	p.must(m.Hold.Version == p.list.Version, "CURRENT", "names list %d, and has %d", m.Hold.Version, p.list.Version)
	if p.Mode != available {
		p.must(!m.Hold.Settled || p.isSettled(now), "NEW_LIST_SUFFICES", "says that list %d has settled", p.list.Version)
	}
}

// open begins a claim.
func (p *process) open(term uint64) {
	c := p.checker
	p.must(term > c.claimed[p.self], "LOWEST", "claims term %d after %d", term, c.claimed[p.self])
	version := uint64(p.list.Version)
	p.must(term>>counterBits == version, "CLAIM_NEWER_LIST", "claims term %d under list %d", term, version)
	place := p.list.place(p.id)
	p.must(place >= 0 && p.list.Ring[place].Priority > 0, "CANDIDATES", "claims the office without being eligible")
	p.must(p.isVoter(), "VOTES_HERE", "claims the office with another state directory than that of the list")
	p.claim, p.token, c.claimed[p.self] = term, 0, term
	p.votes, p.earlier, p.own = map[uint32]int64{}, never, never
}

// answer checks a GRANT, a DENY, or the answer to a PROBE.
func (p *process) answer(m *message, now int64) {
	v, to := p.voter, life{p.name(m.To), m.Hold.RequesterLife}
	highest := v.highest
	if m.Kind == grant {
		r, requested := p.requests[key{to, m.Term, m.Hold.Sent}]
		p.must(requested, "REQUEST", "grants %s term %d, which it hasn't requested", to.name, m.Term)
		rule, lease := p.mayGrant(to, r, now), m.Hold.Lease
		p.must(rule == "", rule, "grants %v term %d until %d: %+v", to, m.Term, now+lease, *v)
		p.must(0 < lease && lease <= p.Lease, "GRANT_REQUESTED_LEASE", "grants a lease of %d, not %d", lease, p.Lease)
		v.grant(to, r, now+lease)
	}
	if m.Kind != probe && v.to == to {
		highest = v.previous
	}
	p.must(m.Hold.HighestGranted >= highest, "HIGHEST", "reports %d, and has granted %d", m.Hold.HighestGranted, highest)
	if m.Hold.Version != 0 {
		p.must(m.Hold.Version == p.list.Version, "CURRENT", "reports list %d, and has %d", m.Hold.Version, p.list.Version)
		p.must(now >= v.older, "REPORT_TOO_EARLY", "reports list %d before %d", m.Hold.Version, v.older)
		p.must(p.isVoter(), "FORGETFUL_ADOPTS", "reports list %d, which names another state directory", m.Hold.Version)
	}
}

// begin checks the beginning of a tenure, if it begins in this step.
func (p *process) begin(s *step, term uint64, now int64) {
	c := p.checker
	starts := slices.IndexFunc(s.Events, func(e happening) bool { return e.Kind == tenureStarted && e.Term == term })
	if starts < 0 || p.began == term {
		return
	}
	token := s.Events[starts].Token
	p.began = term
	if term != p.claim {
		p.open(term)
	}
	p.must(token == term<<placeBits|uint64(p.list.place(p.id)), "TOKEN", "has token %d in term %d", token, term)
	if p.Mode == available {
		p.must(term <= p.voter.reserved, "AVAILABLE_ABOVE", "leads in term %d, above %d", term, p.voter.reserved)
		p.must(term > p.voter.highest, "AVAILABLE_FORGETS", "leads in term %d after %d", term, p.voter.highest)
		p.voter.highest = term
	} else {
		p.must(term > c.newest, "TOKEN_FELL", "leads in term %d after a tenure in term %d", term, c.newest)
		p.relyUntil(now+1, now)
		c.newest = max(c.newest, term)
	}
	p.token = token
	c.led[tenure{p.self.name, term}] = true
	c.Tenures++
}

// observe checks what the process believes after a step.
func (p *process) observe(in *step, at, now int64) {
	before, s := p.status, &in.Status
	until := p.origin + s.Until
	p.status = *s
	p.must(s.Token == p.token, "TOKEN", "has token %d, and its tenure has %d", s.Token, p.token)
	led := s.Coordinator == 0 || p.checker.led[tenure{p.name(s.Coordinator), s.Term}]
	p.must(led, "FOLLOW", "follows %s, which hasn't led in term %d", p.name(s.Coordinator), s.Term)
	p.must(s.Term >= before.Term || p.Mode == available && s.Coordinator != before.Coordinator, "TERM",
		"goes from term %d to %d", before.Term, s.Term)
	if p.token == 0 || p.Mode == available {
		return
	}
	p.must(now < until || in.Settings != nil, "LAPSES", "acts after %d", until)
	if s.Token == before.Token && s.Until == before.Until {
		return
	}
	p.relyUntil(until, now)
	left := until - now
	if at != now {
		left -= left / 16 // The rates of the clocks differ by less than the margin of a lease.
	}
	p.endsAt = at + left
	for l, other := range p.checker.processes {
		over := at >= other.endsAt || other.token == 0 || p.checker.ended[l] && !p.checker.allStrict
		p.must(l == p.self || over, "TWO_HOLDERS", "holds the office, and so does %s until %d", l.name, other.endsAt)
	}
}
