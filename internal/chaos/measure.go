package chaos

import (
	"slices"
	"time"
)

// Times are the durations from the fault. A nil duration wasn't observed.
type Times struct {
	// Elected: an agent reports another coordinator, or the same one in a later term.
	Elected *time.Duration
	// Known: every agent that survived the fault reports it, or a later one.
	Known *time.Duration
	// Status: the group's status shows it, or a later one.
	Status *time.Duration
	// Service: the Service routes to it.
	Service *time.Duration
	// Coordinator is the pod that was elected.
	Coordinator string
	// Missing describes the first duration that wasn't observed. It is empty if all were.
	Missing string
}

// Measure returns the durations from the fault.
func Measure(r *Record) (t Times) {
	if r.ByClaims {
		return r.measureClaims()
	}
	t = r.measure()
	switch {
	case t.Elected == nil:
		t.Missing = "no agent reported another coordinator"
	case t.Known == nil:
		t.Missing = "some agents didn't report the coordinator " + t.Coordinator
	case t.Status == nil:
		t.Missing = "the status didn't show the coordinator " + t.Coordinator
	case t.Service == nil && r.HasService:
		t.Missing = "the Service didn't route to the coordinator " + t.Coordinator
	}
	return t
}

// measureClaims returns when another process led.
func (r *Record) measureClaims() (t Times) {
	successions := r.Successions()
	if len(successions) == 0 {
		t.Missing = "no other pod led"
		return t
	}
	t.Elected, t.Coordinator = r.since(successions[0].Received), successions[0].From.Pod
	return t
}

func (r *Record) measure() (t Times) {
	at := slices.IndexFunc(r.Changes, func(c Change) bool {
		return c.Coordinator != "" && c.Term > r.Term && !c.At.Before(r.Fault) && !r.ledByOusted(c.Term)
	})
	if at < 0 {
		return t
	}
	elected := r.Changes[at]
	t.Elected, t.Coordinator = r.since(elected.At), elected.Coordinator
	t.Known = r.known(elected.Term)
	for _, s := range r.Statuses {
		if s.Coordinator != "" && s.Term >= elected.Term && !s.At.Before(r.Fault) {
			t.Status = r.since(s.At)
			break
		}
	}
	for _, route := range r.Routes {
		if len(route.Addresses) == 1 && !route.At.Before(r.Fault) && r.leadsSince(elected.Term, route.Addresses[0]) {
			t.Service = r.since(route.At)
			break
		}
	}
	return t
}

// ledByOusted reports whether a victim was coordinator in this term that can't be the next one.
func (r *Record) ledByOusted(term uint64) bool {
	return r.Ousted &&
		slices.ContainsFunc(r.Changes, func(c Change) bool { return c.Leading && c.Term == term && r.Victims[c.From.UID] })
}

func (r *Record) since(t time.Time) *time.Duration { return new(max(0, t.Sub(r.Fault))) }

// known returns when the last survivor reported a coordinator of this term or a later one. Agents whose pods ended
// meanwhile count until their end.
func (r *Record) known(term uint64) *time.Duration {
	var last time.Time
	for _, agent := range r.Agents {
		if r.Victims[agent.UID] {
			continue
		}
		at := slices.IndexFunc(r.Changes, func(c Change) bool {
			return c.From == agent && !c.At.Before(r.Fault) && (c.Gone || c.Coordinator != "" && c.Term >= term)
		})
		if at < 0 {
			return nil
		}
		if c := r.Changes[at]; !c.Gone && c.At.After(last) {
			last = c.At
		}
	}
	if last.IsZero() { // No agent survived.
		return r.knownByNew(term)
	}
	return r.since(last)
}

// knownByNew returns when the first agent reported the coordinator.
func (r *Record) knownByNew(term uint64) *time.Duration {
	at := slices.IndexFunc(r.Changes,
		func(c Change) bool { return c.Coordinator != "" && c.Term >= term && !c.At.Before(r.Fault) })
	if at < 0 {
		return nil
	}
	return r.since(r.Changes[at].At)
}

// leadsSince reports whether the pod with this address was elected in this term or a later one.
func (r *Record) leadsSince(term uint64, address string) bool {
	return slices.ContainsFunc(r.Changes, func(c Change) bool {
		return c.Term >= term && c.Coordinator != "" && slices.Contains(r.Addresses[c.Coordinator], address)
	})
}
