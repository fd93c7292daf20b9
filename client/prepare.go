package client

import (
	"context"
	"time"
)

// Prepare sets a function that Run calls, in a goroutine of its own, as soon as this process is elected, if a former
// lease has to end before it may lead. Within the given time, Run calls lead, or the process isn't elected any more. It
// is for what needs no office, such as filling caches: only lead may act as coordinator. Run doesn't wait for it, and
// calls lead without it after an election that needs no wait.
//
// The context ends when the process isn't elected any more, and otherwise with the tenure, so lead may wait for what is
// under way.
func Prepare(prepare func(ctx context.Context, within time.Duration)) Option {
	return func(a *agent) { a.prepare = prepare }
}

// prepare calls the function of Prepare, unless what it has prepared for an earlier election still counts.
func (s *session) prepare(term uint64, within time.Duration) {
	if s.agent.prepare == nil {
		return
	}
	again := s.unprepare != nil
	if s.prepared = term; again {
		return
	}
	ctx, end := context.WithCancel(s.parent)
	s.unprepare = end
	go s.agent.prepare(ctx, within) // Nothing waits for it.
}

// endPreparation ends what was prepared for elections up to a term.
func (s *session) endPreparation(term uint64) {
	if s.unprepare != nil && s.prepared <= term {
		s.unprepare()
		s.unprepare = nil
	}
}
