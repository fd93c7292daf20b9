package clusteraccess

import (
	"net/http"
	"sync/atomic"
	"time"
)

// clusterClock is the clock of the API server. The times in a status are from the cluster, and
// the clock of the user's machine may differ from it by hours.
type clusterClock struct {
	// ahead is by how much the clock of this machine is ahead.
	ahead atomic.Int64
}

// smallestDifference is the least difference that counts: responses have the time in seconds, and take a moment.
const smallestDifference = 5 * time.Second

// Now returns the time of the cluster.
func (c *clusterClock) Now() time.Time { return time.Now().Add(-time.Duration(c.ahead.Load())) }

// clockReader is a RoundTripper that reads the clock from the responses.
type clockReader struct {
	http.RoundTripper

	clock *clusterClock
}

func (c *clusterClock) readFrom(next http.RoundTripper) http.RoundTripper {
	return &clockReader{next, c}
}

// RoundTrip implements http.RoundTripper.
func (r *clockReader) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.RoundTripper.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if at, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		ahead := time.Since(at)
		if ahead.Abs() < smallestDifference {
			ahead = 0
		}
		r.clock.ahead.Store(int64(ahead))
	}
	return response, nil
}

// WrappedRoundTripper lets client-go find the transport.
func (r *clockReader) WrappedRoundTripper() http.RoundTripper { return r.RoundTripper }
