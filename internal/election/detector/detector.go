// Package detector detects failures by silence. It can only suspect: a process
// that is slow, stopped or cut off looks like a dead one.
//
// The caller reports every sign of life and calls Overdue at the Deadline. The
// detector doesn't make signs of life regular; package office sends them.
//
// A caller that was itself paused or had no CPU time gives the others a grace period before it suspects them
// (Postpone), as Lifeguard does for SWIM: their signs of life may be waiting to be read.
//
// Not guaranteed: that a suspect is dead, or that a dead process is suspected before the suspicion timeout has passed.
package detector

import "github.com/conclave-dev/conclave/internal/election"

// Detector watches some of the processes.
type Detector struct {
	// timeout is the suspicion timeout.
	timeout election.Tick
	// lastSeen is, by ID, the moment of the last sign of life. It is unwatched for processes that aren't watched.
	lastSeen []election.Tick
	watched  int
	// next is a moment before which no watched process can be overdue.
	next     election.Tick
	suspects election.IDs
	// postponed are the processes whose suspicion was postponed since their last sign of life.
	postponed election.IDs
}

const unwatched election.Tick = -1

// Reset makes the detector watch and suspect no process. It sets the suspicion timeout.
func (d *Detector) Reset(timeout election.Tick) {
	d.suspects = nil
	d.Unwatch(timeout)
}

// Unwatch stops watching all processes and sets the suspicion timeout for those
// that are watched next. Suspects remain suspects.
func (d *Detector) Unwatch(timeout election.Tick) {
	d.timeout = timeout
	for i := range d.lastSeen {
		d.lastSeen[i] = unwatched
	}
	d.watched, d.next, d.postponed = 0, election.Never, nil
}

// Retime changes the suspicion timeout for the processes that are watched.
func (d *Detector) Retime(timeout election.Tick) {
	d.timeout, d.next = timeout, election.Never
	for i, lastSeen := range d.lastSeen {
		if lastSeen != unwatched && !d.suspects.Has(election.ID(i)) {
			d.next = min(d.next, lastSeen+timeout)
		}
	}
}

// Watch starts watching id. The suspicion timeout begins now.
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

// Observe records a sign of life, and reports whether id was a suspect until now.
func (d *Detector) Observe(id election.ID, now election.Tick) bool {
	if int(id) < len(d.lastSeen) && d.lastSeen[id] != unwatched {
		d.lastSeen[id] = now
		if len(d.postponed) > 0 {
			d.postponed.Remove(id)
		}
		if d.watched == 1 {
			d.next = now + d.timeout // no other process can be overdue earlier
		} else {
			d.next = min(d.next, now+d.timeout) // if id was a suspect, next doesn't cover it yet
		}
	}
	return len(d.suspects) > 0 && d.suspects.Remove(id)
}

// Postpone gives every watched process that isn't a suspect at least grace from now on. The caller was late itself, so
// that signs of life may be waiting to be read. A process gets this only once between two signs of life; otherwise a
// caller that is always late would never suspect it.
func (d *Detector) Postpone(now, grace election.Tick) {
	earliest := now + grace - d.timeout
	for i, lastSeen := range d.lastSeen {
		if lastSeen != unwatched && lastSeen < earliest && !d.suspects.Has(election.ID(i)) &&
			d.postponed.Add(election.ID(i)) {
			d.lastSeen[i] = earliest
		}
	}
}

// Suspect makes id a suspect on other evidence, and reports whether it wasn't one before.
func (d *Detector) Suspect(id election.ID) bool { return d.suspects.Add(id) }

// Suspects reports whether id is a suspect.
func (d *Detector) Suspects(id election.ID) bool { return len(d.suspects) > 0 && d.suspects.Has(id) }

// All returns the suspects. Callers must not change the result.
func (d *Detector) All() election.IDs { return d.suspects }

// Deadline returns when to call Overdue next, or Never.
func (d *Detector) Deadline() election.Tick { return d.next }

// Overdue returns a watched process that has been silent for the suspicion timeout
// and isn't a suspect yet, or None. It makes that process a suspect.
func (d *Detector) Overdue(now election.Tick) election.ID {
	if now < d.next {
		return election.None
	}
	d.next = election.Never
	for i, lastSeen := range d.lastSeen {
		id := election.ID(i)
		if lastSeen == unwatched || d.suspects.Has(id) {
			continue
		}
		if now >= lastSeen+d.timeout {
			d.suspects.Add(id)
			d.next = now
			return id
		}
		d.next = min(d.next, lastSeen+d.timeout)
	}
	return election.None
}

// Retain removes all processes for which keep returns false.
func (d *Detector) Retain(keep func(election.ID) bool) {
	var retained election.IDs
	for _, id := range d.suspects {
		if keep(id) {
			retained = append(retained, id)
		}
	}
	d.suspects, d.postponed = retained, nil
	for i := range d.lastSeen {
		if d.lastSeen[i] != unwatched && !keep(election.ID(i)) {
			d.lastSeen[i] = unwatched
			d.watched--
		}
	}
}

// Clone returns an independent copy.
func (d *Detector) Clone() Detector {
	c := *d
	c.lastSeen = append([]election.Tick(nil), d.lastSeen...)
	c.suspects, c.postponed = d.suspects.Clone(), d.postponed.Clone()
	return c
}

// Encode appends the state to b. The state includes the moment of the next check.
// For example, a check that finds no overdue process changes only that moment. A
// search that treated the states before and after it as equal would stop there.
func (d *Detector) Encode(b []byte, now election.Tick) []byte {
	b = election.AppendMoment(b, d.next, now)
	for i, lastSeen := range d.lastSeen {
		if lastSeen != unwatched && !d.suspects.Has(election.ID(i)) {
			b = election.AppendNumber(b, uint64(i))
			b = election.AppendMoment(b, lastSeen+d.timeout, now)
		}
	}
	return d.postponed.Encode(d.suspects.Encode(append(b, 0)))
}
