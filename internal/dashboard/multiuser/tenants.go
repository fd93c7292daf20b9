package multiuser

import (
	"slices"
	"strings"
	"sync"
)

// tenantOf returns who is responsible for a user: the namespace of a service account, in which one tenant can create any number,
// and otherwise the user.
func tenantOf(username string) string {
	if account, ok := strings.CutPrefix(username, "system:serviceaccount:"); ok {
		namespace, _, _ := strings.Cut(account, ":")
		return "namespace:" + namespace
	}
	return "user:" + username
}

// largestTenant returns the tenant with the most entries, and how many that are.
func largestTenant[T any](all []T, tenant func(T) string) (largest string, most int) {
	counts := map[string]int{}
	for _, entry := range all {
		t := tenant(entry)
		if counts[t]++; counts[t] > most {
			largest, most = t, counts[t]
		}
	}
	return largest, most
}

// openStreams are the streams of all users.
type openStreams struct {
	mu  sync.Mutex
	all []*openStream // in the order of their beginnings
}

type openStream struct {
	username string
	end      func()
}

func (s *openStream) tenant() string { return tenantOf(s.username) }

// users returns the number of users with streams.
func (o *openStreams) users() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	users := map[string]bool{}
	for _, s := range o.all {
		users[s.username] = true
	}
	return len(users)
}

// add counts a stream, unless its user has too many. If there are too many in all, it ends the newest stream of the tenant that has
// the most, unless this tenant would then have as many.
func (o *openStreams) add(username string, end func()) (remove func(), ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	added := &openStream{username, end}
	if o.count(func(s *openStream) bool { return s.username == username }) >= streamsPerUserMax {
		return nil, false
	}
	if len(o.all) >= streamsMax {
		largest, most := largestTenant(o.all, (*openStream).tenant)
		if o.count(func(s *openStream) bool { return s.tenant() == added.tenant() })+1 >= most {
			return nil, false
		}
		for i, s := range slices.Backward(o.all) {
			if s.tenant() == largest {
				s.end()
				o.all = slices.Delete(o.all, i, i+1)
				break
			}
		}
	}
	o.all = append(o.all, added)
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.all = slices.DeleteFunc(o.all, func(s *openStream) bool { return s == added })
	}, true
}

// count counts the streams that match. The caller holds the lock.
func (o *openStreams) count(matches func(*openStream) bool) (n int) {
	for _, s := range o.all {
		if matches(s) {
			n++
		}
	}
	return n
}
