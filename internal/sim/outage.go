package sim

import (
	"fmt"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// An outage is the time without a coordinator after a fault. It begins when the last process that acts as
// coordinator ends, is paused, or loses or gives up its tenure. If another fault happens before there is a
// coordinator again, the outage begins again, as one of that kind: so each outage is what the processes need
// after one fault. Some faults only show when a tenure expires. Such an outage is one of the last fault before.

type outageKind uint8

const (
	outageStart outageKind = iota // the processes start
	outageMessages
	outageCrash
	outageLateProof
	outageSilentCrash
	outageFalseProof
	outageRestart
	outageApplication
	outagePause
	outageSlow
	outagePartition
	outageStepDown
	outageHandOver
	outageRemoval
	outageMembers
	outageSettings
	outageHeal
	outageKinds
)

var outageNames = [outageKinds]string{
	"start", "lost or late messages", "crash", "crash with late proof", "silent crash",
	"false proof", "restart", "application",
	"pause", "slow process", "links", "step-down", "hand-over", "removal", "member list", "settings",
	"end of all faults",
}

type outages struct {
	// open is set while there is no coordinator, since began. The last fault happened at since.
	open         bool
	began, since election.Tick
	last         outageKind
	// vacant is the time without a coordinator since vacantSince was called.
	vacant, countFrom election.Tick
	// durations are those of all schedules since the last report, by kind.
	durations [outageKinds]durations
}

func (o *outages) reset() { o.open, o.began, o.since, o.last = true, 0, 0, outageStart }

func (o *outages) fault(kind outageKind, now election.Tick) { o.last, o.since = kind, now }

// vacantSince begins to count the time without a coordinator.
func (o *outages) vacantSince(now election.Tick) { o.vacant, o.countFrom = 0, now }

func (o *outages) vacantFor(now election.Tick) election.Tick {
	if o.open {
		return o.vacant + now - o.countFrom
	}
	return o.vacant
}

// beginOutage begins an outage if no process acts as coordinator any more.
func (s *simulation) beginOutage(kind outageKind) {
	if s.outages.open {
		return
	}
	for id := election.ID(1); id <= s.maxID; id++ {
		if p := &s.processes[id]; p.up && p.status.Token != 0 && p.pausedUntil <= s.queue.now {
			return
		}
	}
	now := s.queue.now
	s.outages.open, s.outages.last, s.outages.began, s.outages.since, s.outages.countFrom = true, kind, now, now, now
}

// followOutage begins or ends an outage after a step of a process, which had a token before if held is set.
func (s *simulation) followOutage(id election.ID, held bool, in *election.Input) {
	o, holds := &s.outages, s.processes[id].status.Token != 0
	switch {
	case holds && o.open:
		s.checkOutage(id)
		o.vacant = o.vacantFor(s.queue.now)
		o.open = false
		o.durations[o.last].add(s.queue.now - o.since)
	case held && !holds:
		s.beginOutage(s.endOfTenure(id, in))
		if s.needsNextList() {
			s.reconcileAt(s.queue.now) // the operator may have waited for that
		}
	}
}

// checkOutage checks the length of an outage that ends now, with a new coordinator. Nothing is promised while messages
// are lost or late, and while processes wait for lists that arrive late, nor for the time for which a process is
// paused.
func (s *simulation) checkOutage(coordinator election.ID) {
	o, sch := &s.outages, &s.schedule
	if sch.disturbsMessages(o.since) || sch.faults&(Graph|Late|Disk) != 0 {
		return
	}
	since := o.since
	for id := election.ID(1); id <= s.maxID; id++ {
		since = max(since, s.processes[id].pausedUntil)
	}
	if length, most := s.queue.now-since, s.longestOutage(coordinator); length > most {
		s.checker.fail("outage",
			fmt.Sprintf("for %d ticks after %s there was no coordinator, want at most %d", length, outageNames[o.last], most))
	}
}

// longestOutage returns how long there may be no coordinator after a fault. If too few processes vote, the others wait
// for the operator.
func (s *simulation) longestOutage(coordinator election.ID) election.Tick {
	most := 5 * s.schedule.maxLease()
	if !s.enoughVote(coordinator) {
		most += s.waitForLists()
	}
	return most
}

// waitForLists returns within which time the operator knows all disks, and publishes a list that settles.
func (s *simulation) waitForLists() election.Tick {
	wait := 2 * (s.schedule.maxLease() + 6*suspicionTimeout)
	if s.schedule.faults&Operator != 0 {
		wait += 4 * lease
	}
	return wait
}

// enoughVote reports whether a majority on the coordinator's side of a partition has voted, under each list in force,
// since before the present outage.
func (s *simulation) enoughVote(coordinator election.ID) bool {
	current := s.operator.current
	for r := current; r != nil; r = r.Previous {
		n := 0
		for _, m := range r.Ring() {
			p := &s.processes[m.ID]
			if p.up && p.votesSince < s.outages.began && r.Identity(m.ID) == p.disk.identity &&
				!s.network.isCut(m.ID, coordinator) {
				n++
			}
		}
		if n < r.Majority() {
			return false
		}
	}
	return true
}

// endOfTenure returns why the last step ended the tenure of a process.
func (s *simulation) endOfTenure(id election.ID, in *election.Input) outageKind {
	p := &s.processes[id]
	resigned := slices.ContainsFunc(s.out.Events, func(e election.Event) bool { return e.Kind == election.OfficeResigned })
	switch {
	case in.Kind == election.BecomeIneligible:
		return outageApplication
	case !resigned && s.schedule.disturbsMessages(s.queue.now):
		return outageMessages
	case !resigned:
		return s.outages.last
	case p.roster.Priority(id) == 0:
		return outageRemoval
	case p.stepsDownIn == p.tenures:
		return outageStepDown
	}
	return outageHandOver
}

// durations counts durations: the number of those of each length, in ticks.
type durations struct {
	counts  []uint32
	total   uint64
	longest election.Tick
}

// countedDurations is how many lengths are told apart. Longer durations count as the last one.
const countedDurations = 200 * lease

func (d *durations) add(length election.Tick) {
	i := int(min(length, countedDurations-1))
	for len(d.counts) <= i {
		d.counts = append(d.counts, 0)
	}
	d.counts[i]++
	d.total++
	d.longest = max(d.longest, length)
}

// merge adds the durations of other, which becomes empty.
func (d *durations) merge(other *durations) {
	for len(d.counts) < len(other.counts) {
		d.counts = append(d.counts, 0)
	}
	for i, n := range other.counts {
		d.counts[i] += n
	}
	d.total, d.longest = d.total+other.total, max(d.longest, other.longest)
	*other = durations{counts: other.counts[:0]}
}

// quantile returns a length that a given percentage of the durations don't exceed.
func (d *durations) quantile(percent uint64) election.Tick {
	rest := (d.total*percent + 99) / 100
	for i, n := range d.counts {
		if rest <= uint64(n) {
			return min(election.Tick(i), d.longest)
		}
		rest -= uint64(n)
	}
	return d.longest
}

// Outage is how long there was no coordinator after one kind of fault, in ticks.
type Outage struct {
	Kind          string
	Count         uint64
	P50, P99, Max election.Tick
}

// InLeases returns a number of ticks as a number of leases.
func InLeases(t election.Tick) float64 { return float64(t) / float64(lease) }

// defaultLeaseMillis is the default lease of a group, as in package control, which the core doesn't import.
const defaultLeaseMillis = 500

// DefaultMillis returns the milliseconds that a number of ticks is in a group with the default lease.
func DefaultMillis(t election.Tick) float64 { return InLeases(t) * defaultLeaseMillis }

func (o *outages) report() []Outage {
	var all []Outage
	for kind := range o.durations {
		if d := &o.durations[kind]; d.total > 0 {
			all = append(all, Outage{outageNames[kind], d.total, d.quantile(50), d.quantile(99), d.longest})
		}
	}
	return all
}
