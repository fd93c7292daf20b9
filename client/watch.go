package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
)

// Watch yields who leads the group, and then each change, in order. It resumes
// by itself where it was interrupted; if the agent no longer remembers that far
// back (it was restarted, or 256 changes went by), with the present state.
//
// An error says that the agent can't be reached (ErrAgentGone), so that what was
// yielded before may no longer be true. It is yielded once; whoever goes on
// ranging gets the state when the agent is back. The last pair is an error if
// there was no point in asking: the address makes no sense, or at the first
// answer the agent knows no such group. Otherwise the sequence ends with ctx.
//
// Leading and Token tell what was: to act, take Run.
func Watch(ctx context.Context, group string, options ...Option) iter.Seq2[State, error] {
	return func(yield func(State, error) bool) {
		transport := newTransport()
		defer transport.CloseIdleConnections()
		a, err := connect(group, transport, options)
		if err != nil {
			yield(State{}, err)
			return
		}
		w := watcher{agent: a, yield: yield}
		w.run(ctx)
	}
}

type watcher struct {
	agent *agent
	yield func(State, error) bool
	// seen is the last event's ID.
	seen string
	// last was yielded last; news: whatever comes next is to be yielded, also if it is the same.
	last State
	news bool
}

// errEnough: whoever ranged has left the loop.
var errEnough = errors.New("enough")

func (w *watcher) run(ctx context.Context) {
	var pause backoff
	w.news = true
	for known, complained := false, false; ; {
		began, err := w.agent.stream(ctx, "/watch", w.seen, w.take)
		switch {
		case errors.Is(err, errEnough) || ctx.Err() != nil:
			return
		case began:
			// Interrupted, by a restart perhaps: it is soon enough to complain when the agent can't be reached.
			known, complained = true, false
			pause.reset()
		case misled(err) && !known:
			w.yield(State{}, fmt.Errorf("watch %s: %w", w.agent.group, err))
			return
		case !complained:
			// Nothing may have changed meanwhile; then only the present state says that the agent is back.
			complained, w.seen, w.news = true, "", true
			if !w.yield(State{}, fmt.Errorf("%w: watch %s: %w", ErrAgentGone, w.agent.group, err)) {
				return
			}
		}
		if !pause.pause(ctx) {
			return
		}
	}
}

// take yields what an event says, unless that isn't new: a stream that couldn't
// be resumed begins with the present state.
func (w *watcher) take(e event) error {
	var state State
	if err := json.Unmarshal(e.data, &state); err != nil {
		return fmt.Errorf("the agent sent %.100q: %w", e.data, err)
	}
	if old(e.id, w.seen) {
		return nil
	}
	w.seen = e.id
	if state == w.last && !w.news {
		return nil
	}
	w.last, w.news = state, false
	if !w.yield(state, nil) {
		return errEnough
	}
	return nil
}

// old reports whether an ID, LIFE-N, is of the same life of the agent as another
// and not after it.
func old(id, than string) bool {
	life, n, ok := parse(id)
	otherLife, other, otherOK := parse(than)
	return ok && otherOK && life == otherLife && n <= other
}

func parse(id string) (life string, n uint64, ok bool) {
	dash := strings.LastIndexByte(id, '-')
	if dash < 0 {
		return "", 0, false
	}
	n, err := strconv.ParseUint(id[dash+1:], 10, 64)
	return id[:dash], n, err == nil
}
