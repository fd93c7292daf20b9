package multiuser

import (
	"hash/maphash"
	"net/http"
	"net/netip"

	"golang.org/x/time/rate"

	"github.com/conclave-dev/conclave/internal/net/connlimit"
)

// How often the API server is asked about tokens that it hasn't accepted before, of one
// host and in total. All users behind a proxy count as one host.
const (
	attemptsPerSecond      = 20
	attemptsBurst          = 100
	attemptsPerSecondByOne = 10
	attemptsBurstByOne     = 50
)

// attempts limits the rate of unknown tokens. Hosts with the same hash share a limit, so
// that its size doesn't depend on the number of hosts.
type attempts struct {
	seed  maphash.Seed
	total *rate.Limiter
	hosts [512]*rate.Limiter
}

func newAttempts() *attempts {
	a := &attempts{seed: maphash.MakeSeed(), total: rate.NewLimiter(attemptsPerSecond, attemptsBurst)}
	for i := range a.hosts {
		a.hosts[i] = rate.NewLimiter(attemptsPerSecondByOne, attemptsBurstByOne)
	}
	return a
}

// allow reports whether the client of a request may try a token.
func (a *attempts) allow(r *http.Request) bool {
	client, _ := netip.ParseAddrPort(r.RemoteAddr) // Clients without an IP address count as one host.
	i := maphash.Comparable(a.seed, connlimit.Host(client.Addr())) % uint64(len(a.hosts))
	return a.hosts[i].Allow() && a.total.Allow()
}
