package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// waitMax is how long a request waits for its turn. It is less than the timeouts of common clients.
const waitMax = time.Second

// lane limits the rate of one kind of requests. The handlers share a processor with the elections (see reduceWakeups in
// cmd/agent), so without it a client that repeats its request in a loop delays the heartbeats until the coordinator
// loses its lease. A client has one request at a time on a connection, so waiting slows down all clients that loop.
type lane struct {
	limiter *rate.Limiter
	// reserving makes it one step to reserve a turn and to return one that would come too late: a limiter takes a turn
	// back completely only if nothing else was reserved meanwhile.
	reserving sync.Mutex
	// slots limits how many handlers run at once, unless it is nil.
	slots chan struct{}
}

// lanes are the limits of the local API. A kind of requests can't use up the rate of another one: a loop that asks for
// the coordinator doesn't delay the renewals of a session, or the probes.
type lanes struct {
	// sessions is for all that an application with a session needs.
	sessions lane
	probes   lane
	// queries is for responses that cost some microseconds, details for those that cost up to some milliseconds.
	queries, details lane
	// refusals is for requests that no handler serves.
	refusals lane
}

func newLanes() *lanes {
	return &lanes{
		sessions: lane{limiter: rate.NewLimiter(1000, 200)},
		probes:   lane{limiter: rate.NewLimiter(100, 20)},
		queries:  lane{limiter: rate.NewLimiter(500, 50)},
		details:  lane{limiter: rate.NewLimiter(50, 10), slots: make(chan struct{}, 1)},
		refusals: lane{limiter: rate.NewLimiter(50, 10)},
	}
}

// forLeader limits the requests for the coordinator. Those that renew a session have their own lane.
func (l *lanes) forLeader(handle http.HandlerFunc) http.HandlerFunc {
	renew, query := l.sessions.limit(handle), l.queries.limit(handle)
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("session") {
			renew(w, r)
		} else {
			query(w, r)
		}
	}
}

// reserve returns a request's turn and how long it waits, which is the time until the turn unless the request is
// refused.
func (l *lane) reserve() (turn *rate.Reservation, wait time.Duration, refused bool) {
	l.reserving.Lock()
	defer l.reserving.Unlock()
	turn = l.limiter.Reserve()
	if wait = turn.Delay(); wait > waitMax {
		turn.Cancel()
		return turn, waitMax, true
	}
	return turn, wait, false
}

// pay lets a request that needs more than its own turn wait for others.
func (l *lane) pay(ctx context.Context, turns int) {
	l.reserving.Lock()
	more := l.limiter.ReserveN(time.Now(), turns)
	l.reserving.Unlock()
	select {
	case <-time.After(more.Delay()):
	case <-ctx.Done():
	}
}

// limit lets requests wait for their turn. A request whose turn would come too late is refused, but only after waitMax,
// so that a client that ignores the status doesn't make more requests than one that waits.
func (l *lane) limit(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		turn, wait, refused := l.reserve()
		if wait > 0 {
			select {
			case <-time.After(wait):
			case <-r.Context().Done():
				turn.Cancel()
				return
			}
		}
		if refused {
			w.Header().Set("Retry-After", strconv.Itoa(int(waitMax.Seconds())))
			writeError(w, http.StatusTooManyRequests,
				errors.New("too many requests: watch the group instead of asking again and again"))
			return
		}
		if l.slots != nil {
			select {
			case l.slots <- struct{}{}:
				defer func() { <-l.slots }()
			case <-r.Context().Done():
				return
			}
		}
		handle(w, r)
	}
}
