// Package detector notices who has fallen silent. It only ever suspects: a
// process that is slow, stopped or cut off looks like a dead one.
//
// It is told of every sign of life and asks for a Tick when the next silence
// would be complete. What makes signs of life regular is not its business:
// package office sends them.
//
// Not guaranteed: that a suspect is dead, or that a dead process is suspected
// before its patience has run out.
package detector

import "github.com/conclave-dev/conclave/internal/election"

// Detector watches some processes.
type Detector struct {
	timeout election.Tick
	// heard is, by ID, the last sign of life; unwatched for all others.
	lastSeen []election.Tick
	watched  int
	// next is a moment before which no watched process can be overdue.
	next     election.Tick
	suspects election.IDs
}

const unwatched election.Tick = -1

// Reset starts a detector that suspects after patience, and watches nobody yet.
func (d *Detector) Reset(patience election.Tick) {
	d.suspects = nil
	d.Unwatch(patience)
}

// Unwatch stops watching everybody, and has that much patience with those who
// are watched next; suspects stay suspects.
func (d *Detector) Unwatch(patience election.Tick) {
	d.timeout = patience
	for i := range d.lastSeen {
		d.lastSeen[i] = unwatched
	}
	d.watched, d.next = 0, election.Never
}

// Watch starts watching id: it is given the whole patience from now on.
func (d *Detector) Watch(id election.ID, now election.Tick) {
	for int(id) >= len(d.lastSeen) {
		d.lastSeen = append(d.lastSeen, unwatched)
	}
	if d.lastSeen[id] == unwatched {
		d.watched++
	}
	d.lastSeen[id] = now
	d.next = min(d.next, now+d.timeout)
}

// Observe notes a sign of life, and reports whether id was a suspect until now.
func (d *Detector) Observe(id election.ID, now election.Tick) bool {
	if int(id) < len(d.lastSeen) && d.lastSeen[id] != unwatched {
		d.lastSeen[id] = now
		if d.watched == 1 {
			d.next = now + d.timeout // a follower needn't look in between
		} else {
			d.next = min(d.next, now+d.timeout) // it may have been a suspect, for whom nobody looks
		}
	}
	return len(d.suspects) > 0 && d.suspects.Remove(id)
}

// Suspect makes id a suspect on other evidence, and reports whether that is new.
func (d *Detector) Suspect(id election.ID) bool { return d.suspects.Add(id) }

// Suspects reports whether id is a suspect.
func (d *Detector) Suspects(id election.ID) bool { return len(d.suspects) > 0 && d.suspects.Has(id) }

// All are the suspects. Callers must not change it.
func (d *Detector) All() election.IDs { return d.suspects }

// Deadline is when to look for silence, or Never.
func (d *Detector) Deadline() election.Tick { return d.next }

// Overdue is a watched process that has been silent for too long and isn't a
// suspect yet, or None. It becomes one by this.
func (d *Detector) Overdue(now election.Tick) election.ID {
	if now < d.next {
		return election.None
	}
	d.next = election.Never
	for i, heard := range d.lastSeen {
		id := election.ID(i)
		if heard == unwatched || d.suspects.Has(id) {
			continue
		}
		if now >= heard+d.timeout {
			d.suspects.Add(id)
			d.next = now
			return id
		}
		d.next = min(d.next, heard+d.timeout)
	}
	return election.None
}

// Retain forgets everybody of whom keep says no.
func (d *Detector) Retain(keep func(election.ID) bool) {
	var still election.IDs
	for _, id := range d.suspects {
		if keep(id) {
			still = append(still, id)
		}
	}
	d.suspects = still
	for i := range d.lastSeen {
		if d.lastSeen[i] != unwatched && !keep(election.ID(i)) {
			d.lastSeen[i] = unwatched
			d.watched--
		}
	}
}

// Clone is an independent copy.
func (d *Detector) Clone() Detector {
	c := *d
	c.lastSeen = append([]election.Tick(nil), d.lastSeen...)
	c.suspects = d.suspects.Clone()
	return c
}

// Encode appends the state to b. When it looks next is part of that: a search
// that took two such states for one would stop at the first look for nothing.
func (d *Detector) Encode(b []byte, now election.Tick) []byte {
	b = election.AppendMoment(b, d.next, now)
	for i, heard := range d.lastSeen {
		if heard != unwatched && !d.suspects.Has(election.ID(i)) {
			b = election.AppendNumber(b, uint64(i))
			b = election.AppendMoment(b, heard+d.timeout, now)
		}
	}
	return d.suspects.Encode(append(b, 0))
}
