package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/group"
)

const (
	// renewalsMax is the maximum of sessions in a request, and renewalsBodyMax is more than those need.
	renewalsMax     = 100
	renewalsBodyMax = 64 << 10
	// renewalsPerTurn is how many of them need as much processor time as a request.
	renewalsPerTurn = 10
	// renewalTimeout is how long a request waits for a group if it is for others as well. The tenures of those must not end
	// because one group stands still.
	renewalTimeout = 100 * time.Millisecond
)

// renewal identifies a session.
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

// renew renews several sessions. A program that leads a hundred groups would spend more processor time on a request for each
// session than the agents spend on all of these groups.
func (a *api) renew(limits *lane) http.HandlerFunc {
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
		limits.limiter.ReserveN(time.Now(), count/renewalsPerTurn) // The next requests wait for these turns.
		ctx := r.Context()
		if count > 1 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, renewalTimeout)
			defer cancel()
		}
		results := make([]renewed, count)
		var all sync.WaitGroup
		for i, session := range request.Sessions {
			all.Go(func() { results[i] = a.renewOne(ctx, session) })
		}
		all.Wait()
		writeJSON(w, http.StatusOK, map[string][]renewed{"results": results})
	}
}

func (a *api) renewOne(ctx context.Context, session renewal) renewed {
	g, missing := a.find(session.Group)
	if missing != nil {
		return renewed{Status: missing.status, failure: *missing}
	}
	l, err := g.RenewSession(ctx, session.Session)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return renewed{Status: http.StatusServiceUnavailable, failure: failure{Error: fmt.Sprintf("group %s didn't respond within %s", session.Group, renewalTimeout)}}
	case err != nil:
		failed := groupFailure(err)
		return renewed{Status: failed.status, failure: failed}
	}
	return renewed{Status: statusOf(&l), Leader: &l}
}
