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
	// renewalsPerTurn is how many of them need as much processor time as a request. Only largeRenewalsMax requests with so many run
	// at once, so that renewals of single sessions don't wait for many turns of others.
	renewalsPerTurn  = 10
	largeRenewalsMax = 4
	// renewalTimeout is how long a request waits for a group if it is for others as well, but a quarter of their shortest lease at most.
	// Their tenures must not end because one group stands still.
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

// renew renews several sessions. A program that leads a hundred groups would spend more processor time on a request for each
// session than the agents spend on all of these groups.
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
		return notRenewed(failure{status: http.StatusServiceUnavailable, Error: "the group doesn't respond in time: renew this session alone"})
	case err != nil:
		return notRenewed(groupFailure(err))
	}
	return renewed{Status: statusOf(&l), Leader: &l}
}

func notRenewed(why failure) renewed { return renewed{Status: why.status, failure: why} }
