package controllers

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/conclave-dev/conclave/internal/operator/decide"
)

// Agents decide how often a group elects, and whoever may create pods may write agents. An election costs the API
// server four writes or more, and 0.03 s of CPU (ADR 10). So the operator limits how often it writes a status, and with
// that the role labels, the Service and the Events that follow. Each of these writes counts for the namespace. What
// waits isn't queued: each reconcile decides anew, so the next write has the newest state.
//
// Elections of a group have a limit of their own. Other changes, such as of a row or a message, don't delay them.
const (
	groupRate = 1
	// electionBurst is enough for five failovers at once: a loss and an election each.
	electionBurst = 10
	changeBurst   = 20
	// The leader and the standby share these writes of a namespace. While the leader waits, the standby takes it for late.
	namespaceRate, namespaceBurst = 25, 100
	standbyShare                  = 0.2
	// A group that elects once a minute doesn't wait for the others of its namespace, unless these have to wait for longer
	// than namespaceDebt. So the loss of a zone with 250 groups makes none wait.
	promptRate, promptBurst = 3.0 / 60, 2
	namespaceDebt           = 100 * time.Second
	// client-go's recorder has the same burst for an object, and then writes one event in five minutes.
	eventRate  = 1.0 / 60
	eventBurst = 25
)

// turns limit how often the operator writes something about a group.
type turns struct {
	limit *rate.Limiter
	// prompt is what doesn't wait for other groups; it may be nil.
	prompt *rate.Limiter
	// reserved is when the next write may happen; zero if none has been reserved.
	reserved time.Time
}

// next returns when the next write may happen, by the group's limit and that of its namespace, if
// any. The time remains reserved until take. So groups of a namespace don't overtake each other.
func (t *turns) next(now time.Time, ofNamespace *rate.Limiter) time.Time {
	if !t.reserved.IsZero() {
		return t.reserved
	}
	delay := t.limit.ReserveN(now, 1).DelayFrom(now)
	if ofNamespace != nil {
		wait := ofNamespace.ReserveN(now, 1).DelayFrom(now)
		if wait == 0 || wait > namespaceDebt || t.prompt == nil || !t.prompt.AllowN(now, 1) {
			delay = max(delay, wait)
		}
	}
	t.reserved = now.Add(delay)
	return t.reserved
}

// take uses the reserved time.
func (t *turns) take() { t.reserved = time.Time{} }

// groupLimits are the limits of a group.
type groupLimits struct{ elections, changes, events turns }

func newGroupLimits() groupLimits {
	return groupLimits{
		elections: turns{
			limit: rate.NewLimiter(groupRate, electionBurst), prompt: rate.NewLimiter(promptRate, promptBurst),
		},
		changes: turns{limit: rate.NewLimiter(groupRate, changeBurst)},
		events:  turns{limit: rate.NewLimiter(eventRate, eventBurst)},
	}
}

// namespaceLimits limit the writes about all groups of each namespace.
type namespaceLimits struct {
	mu     sync.Mutex
	byName map[string]*rate.Limiter
}

func (l *namespaceLimits) of(namespace string, now time.Time, leads bool) *rate.Limiter {
	share := standbyShare
	if leads {
		share = 1 - standbyShare
	}
	limit, burst := rate.Limit(namespaceRate*share), int(namespaceBurst*share)
	l.mu.Lock()
	defer l.mu.Unlock()
	if found := l.byName[namespace]; found != nil {
		found.SetLimitAt(now, limit)
		found.SetBurstAt(now, burst)
		return found
	}
	for name, other := range l.byName {
		if other.TokensAt(now) >= float64(other.Burst()) {
			delete(l.byName, name) // A new one is the same.
		}
	}
	if l.byName == nil {
		l.byName = map[string]*rate.Limiter{}
	}
	l.byName[namespace] = rate.NewLimiter(limit, burst)
	return l.byName[namespace]
}

// charge counts a write that doesn't wait for a turn. The next status of the namespace waits instead.
func (r *Reconciler) charge(namespace string) {
	now := time.Now()
	r.limits.of(namespace, now, r.leads()).ReserveN(now, 1)
}

// debt returns how long a write waits that isn't urgent: until those that were counted have had their turns.
func (r *Reconciler) debt(namespace string) time.Duration {
	now := time.Now()
	limit := r.limits.of(namespace, now, r.leads())
	return time.Duration(max(0, -limit.TokensAt(now)) / float64(limit.Limit()) * float64(time.Second))
}

// mustWait reports whether the group or its namespace has used up its limit of writes.
// Then the next reconcile of the group is due when it may write.
func (r *Reconciler) mustWait(s *snapshot, limit decide.Limit) bool {
	turns := &s.state.limits.changes
	switch limit {
	case decide.NoLimit:
		r.charge(s.Group.Namespace)
		return false
	case decide.LimitChanges:
	case decide.LimitElections:
		turns = &s.state.limits.elections
	}
	now := time.Now()
	at := turns.next(now, r.limits.of(s.Group.Namespace, now, s.Leads()))
	if now.Before(at) {
		s.wakeUp(at)
		return true
	}
	turns.take()
	return false
}
