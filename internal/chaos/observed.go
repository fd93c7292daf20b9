package chaos

import (
	"slices"
	"time"
)

// changeOfLeader is what counts in place of a fault while the faults are injected by something else.
const changeOfLeader = "change"

// ObservedChanges returns the changes of the leader, as if each were a fault at the last time at which the former
// leader was seen to lead. So what is measured is the longest time without a leader that the observations permit. The
// violations belong to these changes or, in a group, to the whole time. See Problems for available.
func (r *Record) ObservedChanges(available bool) (changes []Fault, violations []Violation) {
	if !r.ByClaims {
		for _, p := range r.Problems(available) {
			violations = append(violations, Violation{Kind: changeOfLeader, Problem: p})
		}
		return r.elections(), violations
	}
	successions := r.Successions()
	var led time.Time
	for i := range r.Claims {
		c := &r.Claims[i]
		if len(changes) < len(successions) && *c == successions[len(changes)] {
			f := Fault{Number: len(changes) + 1, Kind: changeOfLeader, At: led, Coordinator: c.From.Pod}
			if led.IsZero() { // Nobody was seen to lead before.
				f.At = r.Fault
			}
			f.Elected = millis(new(max(0, c.Received.Sub(f.At))))
			changes = append(changes, f)
		}
		if c.Leading && c.Received.After(led) {
			led = c.Received
		}
	}
	for _, o := range Overlaps(r.Claims) {
		f := o.after(changes)
		if total := millis(&o.Total); f.TwoLeaders == nil || *f.TwoLeaders < *total {
			f.TwoLeaders = total
		}
		if !r.ByObjects {
			violations = append(violations, Violation{Fault: f.Number, Kind: f.Kind, Problem: Problem{OneLeader, o.String()}})
		}
	}
	return changes, violations
}

// elections returns those of a group. Which agents survived a fault isn't known, so it isn't measured when all know
// the next coordinator.
func (r *Record) elections() (all []Fault) {
	rest := *r
	for _, c := range r.Changes {
		if c.Coordinator == "" || c.Term <= rest.Term {
			continue
		}
		rest.Fault = r.lastSign(&c)
		t := rest.measure()
		t.Known = nil
		f := Fault{Number: len(all) + 1, Kind: changeOfLeader, At: rest.Fault, Coordinator: c.Coordinator}
		f.SetTimes(&t)
		all, rest.Term = append(all, f), c.Term
	}
	return all
}

// lastSign returns when a coordinator answered for the last time before another one was elected.
func (r *Record) lastSign(elected *Change) time.Time {
	last := r.Fault
	for _, a := range r.Answers {
		if a.Term < elected.Term && a.Received.After(last) && !a.Received.After(elected.At) {
			last = a.Received
		}
	}
	return last
}

// after returns the last change that began before the end of the overlap. There is one: before the first change, one
// process leads.
func (o *Overlap) after(changes []Fault) *Fault {
	for i := range slices.Backward(changes) {
		if !changes[i].At.After(o.Until) {
			return &changes[i]
		}
	}
	return &Fault{Kind: changeOfLeader}
}
