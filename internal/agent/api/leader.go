package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/group"
)

// maxPromise is the maximum of a promise that a client may ask for. It is more than the
// longest lease.
const maxPromise = time.Hour

// getLeader responds with the coordinator. The status is 200 if it is this process, and
// 503 otherwise.
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
