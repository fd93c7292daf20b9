package chaos

import (
	"slices"
	"time"
)

// changeOfLeader is what counts in place of a fault while the faults are injected by something else.
const changeOfLeader = "change"

// ObservedChanges returns the changes of the leader, as if each were a fault at the last time at which the former leader was seen to lead. So
// what is measured is the longest time without a leader that the claims permit. The violations belong to these changes.
func (r *Record) ObservedChanges() (changes []Fault, violations []Violation) {
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

// after returns the last change that began before the end of the overlap. There is one: before the first change, one process leads.
func (o *Overlap) after(changes []Fault) *Fault {
	for i := range slices.Backward(changes) {
		if !changes[i].At.After(o.Until) {
			return &changes[i]
		}
	}
	return &Fault{Kind: changeOfLeader}
}
