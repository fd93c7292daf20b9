package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/group"
)

// maxPromise is the maximum of a promise that a client may ask for. It is more than the longest lease.
const maxPromise = time.Hour

// getLeader responds with the coordinator. The status is 200 if it is this process, and 503 otherwise.
func getLeader(g Group, w http.ResponseWriter, r *http.Request) {
	promise, err := parsePromise(r.URL.Query())
	if err != nil {
		writeError(w, http.StatusBadRequest, err)
		return
	}
	l, err := leaderFor(g, r, promise)
	if err != nil {
		writeGroupError(w, err)
		return
	}
	writeJSON(w, statusOf(&l), l)
}

func statusOf(l *group.Leader) int {
	if l.Leading {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

// leaderFor returns the coordinator for a client. A client with a session will be asked to
// stop. A client that asks for a promise may act until the remaining time is over. All
// other clients only learn the current state, so there is no remaining time for them.
func leaderFor(g Group, r *http.Request, promise time.Duration) (group.Leader, error) {
	switch query := r.URL.Query(); {
	case query.Has("session"):
		return g.RenewSession(r.Context(), query.Get("session"))
	case promise > 0:
		return g.LeaderWithPromise(r.Context(), promise)
	}
	l := g.Leader()
	l.RemainingMillis = nil
	return l, nil
}

func parseRenews(query url.Values) (bool, error) {
	switch value := query.Get("renews"); value {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, fmt.Errorf("renews must be true or false, got %.80q", value)
	}
}

// parsePromise returns the duration of the promise that a client asks for, 0 for none.
func parsePromise(query url.Values) (time.Duration, error) {
	const parameter = "promiseMillis"
	if !query.Has(parameter) {
		return 0, nil
	}
	if query.Has("session") {
		return 0, errors.New("a session needs no promise: it is asked to stop; use either session or " + parameter)
	}
	millis, err := strconv.ParseInt(query.Get(parameter), 10, 64)
	if err != nil || millis < 1 || millis > maxPromise.Milliseconds() {
		return 0, fmt.Errorf("%s must be from 1 to %d, got %.80q", parameter, maxPromise.Milliseconds(), query.Get(parameter))
	}
	return time.Duration(millis) * time.Millisecond, nil
}

const (
	// renewalsMax is the maximum of sessions in a request, and renewalsBodyMax is more than those need.
	renewalsMax     = 100
	renewalsBodyMax = 64 << 10
	// renewalsPerTurn is how many of them need as much processor time as a request. Only largeRenewalsMax requests with so
	// many run at once, so that renewals of single sessions don't wait for many turns of others.
	renewalsPerTurn  = 10
	largeRenewalsMax = 4
	// renewalTimeout is how long a request waits for a group if it is for others as well, but a quarter of their shortest
	// lease at most. Their tenures must not end because one group stands still.
	renewalTimeout = 100 * time.Millisecond
)

type renewal struct {
	Group   string `json:"group"`
	Session string `json:"session"`
}

// renewed is the result of a renewal: what the response to leader?session=ID would be.
type renewed struct {
	Status int           `json:"status"`
	Leader *group.Leader `json:"leader,omitempty"`
	failure
}

// renew renews several sessions. A program that leads a hundred groups would spend more processor time on a request for
// each session than the agents spend on all of these groups.
func (a *api) renew(limits *lane) http.HandlerFunc {
	large := make(chan struct{}, largeRenewalsMax)
	return func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			Sessions []renewal `json:"sessions"`
		}
		if !readJSON(w, r, renewalsBodyMax, &request) {
			return
		}
		count := len(request.Sessions)
		if count < 1 || count > renewalsMax {
			writeError(w, http.StatusBadRequest, fmt.Errorf("sessions must have 1 to %d elements, got %d", renewalsMax, count))
			return
		}
		if count >= renewalsPerTurn {
			select {
			case large <- struct{}{}:
				defer func() { <-large }()
			case <-r.Context().Done():
				return
			}
			limits.pay(r.Context(), count/renewalsPerTurn)
		}
		writeJSON(w, http.StatusOK, map[string][]renewed{"results": a.renewAll(r.Context(), request.Sessions)})
	}
}

func (a *api) renewAll(ctx context.Context, sessions []renewal) []renewed {
	results, groups := make([]renewed, len(sessions)), make([]Group, len(sessions))
	timeout := renewalTimeout
	for i, session := range sessions {
		g, missing := a.find(session.Group)
		if missing != nil {
			results[i] = notRenewed(*missing)
			continue
		}
		groups[i] = g
		if lease := g.Lease(); lease > 0 {
			timeout = min(timeout, lease/4)
		}
	}
	if len(sessions) > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	var all sync.WaitGroup
	for i, g := range groups {
		if g != nil {
			all.Go(func() { results[i] = renewOne(ctx, g, sessions[i].Session) })
		}
	}
	all.Wait()
	return results
}

func renewOne(ctx context.Context, g Group, session string) renewed {
	l, err := g.RenewSession(ctx, session)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return notRenewed(
			failure{status: http.StatusServiceUnavailable, Error: "the group doesn't respond in time: renew this session alone"})
	case err != nil:
		return notRenewed(groupFailure(err))
	}
	return renewed{Status: statusOf(&l), Leader: &l}
}

func notRenewed(why failure) renewed { return renewed{Status: why.status, failure: why} }
