package tracecheck

import (
	"fmt"
	"math"
)

// never is when a grant ends that was never given.
const never = math.MinInt64

// lasts returns for how long a holder counts on a lease: less than the member's promise, because clocks differ.
func lasts(lease int64) int64 { return lease - lease/16 - 1 }

// voter is a state directory. It keeps its promises when its process ends.
type voter struct {
	// The latest grant. renewed: it has renewed a tenure.
	to      life
	term    uint64
	version uint32
	until   int64
	renewed bool
	// older is until when what was granted under earlier lists lasts, and adopted the list.
	older   int64
	adopted uint32
	// highest is the highest term of an acquisition, and previous the one before the latest grant.
	highest, previous uint64
	// reserved is on the disk. A member without its memory grants nothing before quiet.
	reserved uint64
	quiet    int64
}

func (v *voter) grant(to life, r request, until int64) {
	same := v.to == to && v.term == r.term
	if !same {
		v.previous = v.highest
	}
	if r.version > v.version {
		v.older = max(v.older, v.until)
	}
	v.renewed = r.held || v.renewed && same
	v.to, v.term, v.version, v.until = to, r.term, r.version, max(v.until, until)
	if !r.held {
		v.highest = max(v.highest, r.term)
	}
}

// release ends the grants to a process up to a term. If it gave up a claim, that term doesn't count as granted.
func (v *voter) release(to life, term uint64, abandoned bool, now int64) {
	if v.to != to || v.term > term {
		return
	}
	if abandoned && v.term == term && !v.renewed {
		v.highest = v.previous
	}
	v.until, v.older = min(v.until, now), min(v.older, now)
}

// adopt records that a list is on the disk, with a first block of its terms.
func (v *voter) adopt(version uint32) {
	if v.version < version {
		v.older, v.version = max(v.older, v.until), version
	}
	v.adopted, v.reserved = max(v.adopted, version), max(v.reserved, uint64(version)<<counterBits+block)
}

// request is what a BEAT requests, and key identifies it: a grant answers one of them.
type (
	request struct {
		term    uint64
		held    bool
		version uint32
	}
	key struct {
		from life
		term uint64
		sent int64
	}
)

// process is one run of a member.
type process struct {
	settings

	checker  *Checker
	names    []string
	origin   int64
	self     life
	identity uint64
	list     *list
	id       uint32 // in the lists
	voter    *voter
	requests map[key]request
	// claim is the term in which the process claims the office, or holds it, 0 if it doesn't. token is that of the tenure,
	// and began the term of the last one.
	claim, token, began uint64
	// votes are the grants for that term, and earlier until when those under the list before suffice.
	votes   map[uint32]int64
	earlier int64
	// own is until when the process may have granted itself, before it got a shorter lease.
	own int64
	// adopters are members of the previous list that have adopted this one.
	adopters map[uint32]bool
	settled  bool
	status   status
	// endsAt is when the tenure ends, on the clock that is the same for all.
	endsAt int64
	err    error
}

func (p *process) name(id uint32) string {
	if int(id) < len(p.names) {
		return p.names[id]
	}
	return ""
}

// must records the first rule that is broken.
func (p *process) must(ok bool, rule, format string, arguments ...any) {
	if !ok && p.err == nil {
		p.err = fmt.Errorf("%s: %s %s", rule, p.self.name, fmt.Sprintf(format, arguments...))
	}
}

func (c *Checker) start(h *header) *process {
	o := &h.Office
	p := &process{
		settings: o.settings, checker: c, names: h.Names, origin: h.Origin, self: life{h.Agent, o.Life}, identity: o.Identity,
		id: o.Self, requests: map[key]request{}, earlier: never, own: never,
	}
	p.useList(o.Roster)
	now, key := h.Origin+o.Start, directory{h.Agent, o.Identity}
	if c.voters[key] == nil {
		c.voters[key] = &voter{until: never, older: never, quiet: never}
	}
	p.voter = c.voters[key]
	p.voter.adopt(o.Roster.Version)
	kept := max(o.Reserved, uint64(o.Roster.Version)<<counterBits+block)
	p.must(kept >= p.voter.reserved, "OUTDATED_DISK", "has reserved %d, and before %d", kept, p.voter.reserved)
	p.voter.reserved = kept
	if o.MemoryLost && o.Memory == nil {
		p.voter.quiet = now - o.EarlierEnded + max(o.Lease, o.LongestEarlierLease)
	}
	if before := c.latest[h.Agent]; before != nil && before.self != p.self {
		c.end(before.self, now, p)
	}
	c.latest[h.Agent], c.processes[p.self] = p, p
	c.allStrict = c.allStrict && o.Mode == strict
	c.led[tenure{p.name(o.Coordinator), o.Term}] = true
	return p
}

// end records that a life has ended, as process p knows. Strict doesn't rely on that.
func (c *Checker) end(l life, now int64, p *process) {
	if p.Mode == majority {
		c.ended[l] = true
		p.voter.release(l, math.MaxUint64, false, now)
	}
}

func (p *process) useList(next *list) {
	if p.list == nil || p.list.Version != next.Version {
		if p.token != 0 {
			p.earlier = p.status.Until + p.origin
		}
		p.votes, p.adopters, p.settled = map[uint32]int64{}, map[uint32]bool{}, next.Previous == nil
	}
	p.list = next
	for _, id := range next.Departed {
		p.adopters[id] = true
	}
}

// isVoter reports whether the list names the state directory of the process.
func (p *process) isVoter() bool {
	list := p.list
	if !list.has(p.id) && list.Previous != nil {
		list = list.Previous
	}
	return !list.has(p.id) || list.Ring[list.place(p.id)].Identity == p.identity
}

func (p *process) isSettled(now int64) bool {
	if p.settled {
		return true
	}
	if p.isVoter() && now >= p.voter.older {
		p.recordAdoption(p.id, p.list.Version)
	}
	return len(p.adopters) > len(p.list.Previous.Ring)/2
}

func (p *process) recordAdoption(id, version uint32) {
	if version >= p.list.Version && p.list.continues(id) {
		p.adopters[id] = true
	}
}
