package controllers

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/conclave-dev/conclave/internal/operator/decide"
)

// Agents decide how often a group elects, and whoever may create pods may write agents. An election
// costs the API server four writes or more, and 0.03 s of CPU (ADR 10). So the operator limits how
// often it writes a status, and with that the role labels, the Service and the Events that follow.
// What waits isn't queued: each reconcile decides anew, so the next write has the newest state.
//
// Elections have limits of their own. Other changes, such as of a row or a message, don't delay them.
const (
	groupRate = 1
	// electionBurst is enough for five failovers at once: a loss and an election each.
	electionBurst = 10
	changeBurst   = 20
	// With namespaceRate, the elections of a namespace take 0.6 cores of the API server.
	// namespaceBurst is enough for the failover of 500 groups, when a zone is lost.
	namespaceRate  = 20
	namespaceBurst = 1000
	// client-go's recorder has the same burst for an object, and then writes one event in five minutes.
	eventRate  = 1.0 / 60
	eventBurst = 25
)

// turns limit how often the operator writes something about a group.
type turns struct {
	limit *rate.Limiter
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
		delay = max(delay, ofNamespace.ReserveN(now, 1).DelayFrom(now))
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
		elections: turns{limit: rate.NewLimiter(groupRate, electionBurst)},
		changes:   turns{limit: rate.NewLimiter(groupRate, changeBurst)},
		events:    turns{limit: rate.NewLimiter(eventRate, eventBurst)},
	}
}

// namespaceLimits are the limits of the groups of each namespace together.
type namespaceLimits struct {
	mu     sync.Mutex
	byName map[string]*namespaceLimit
}

type namespaceLimit struct{ elections, changes *rate.Limiter }

func (l *namespaceLimits) of(namespace string, now time.Time) *namespaceLimit {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found := l.byName[namespace]; found != nil {
		return found
	}
	for name, limit := range l.byName {
		if limit.elections.TokensAt(now) >= namespaceBurst && limit.changes.TokensAt(now) >= namespaceBurst {
			delete(l.byName, name) // A new one is the same.
		}
	}
	if l.byName == nil {
		l.byName = map[string]*namespaceLimit{}
	}
	limit := &namespaceLimit{rate.NewLimiter(namespaceRate, namespaceBurst), rate.NewLimiter(namespaceRate,
		namespaceBurst)}
	l.byName[namespace] = limit
	return limit
}

// mustWait reports whether the group or its namespace has used up its limit of status writes.
// Then the next reconcile of the group is due when it may write.
func (r *Reconciler) mustWait(s *snapshot, limit decide.Limit) bool {
	now := time.Now()
	ofNamespace := r.limits.of(s.Group.Namespace, now)
	turns, namespaceLimit := &s.state.limits.changes, ofNamespace.changes
	switch limit {
	case decide.NoLimit:
		return false
	case decide.LimitChanges:
	case decide.LimitElections:
		turns, namespaceLimit = &s.state.limits.elections, ofNamespace.elections
	}
	at := turns.next(now, namespaceLimit)
	if now.Before(at) {
		s.wakeUp(at)
		return true
	}
	turns.take()
	return false
}
