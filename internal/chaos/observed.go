package chaos

import (
	"slices"
	"time"
)

// changeOfLeader is what counts in place of a fault while the faults are injected by something else.
const changeOfLeader = "change"

// ObservedChanges returns the changes of the leader, as if each were a fault at the last time at which the former leader was seen to lead. So
// what is measured is the longest time without a leader that the claims permit.
func (r *Record) ObservedChanges() (all []Fault) {
	successions := r.Successions()
	var led time.Time
	for i := range r.Claims {
		c := &r.Claims[i]
		if len(all) < len(successions) && *c == successions[len(all)] {
			f := Fault{Number: len(all) + 1, Kind: changeOfLeader, At: led, Coordinator: c.From.Pod}
			if led.IsZero() { // Nobody was seen to lead before.
				f.At = r.Fault
			}
			f.Elected = millis(new(max(0, c.Received.Sub(f.At))))
			all = append(all, f)
		}
		if c.Leading && c.Received.After(led) {
			led = c.Received
		}
	}
	for _, o := range Overlaps(r.Claims) {
		o.attributeTo(all)
	}
	return all
}

// attributeTo sets how long two processes led after the last change before the end of the overlap.
func (o *Overlap) attributeTo(changes []Fault) {
	for i := range slices.Backward(changes) {
		f := &changes[i]
		if f.At.After(o.Until) {
			continue
		}
		if total := millis(&o.Total); f.TwoLeaders == nil || *f.TwoLeaders < *total {
			f.TwoLeaders = total
		}
		return
	}
}
