package multiuser

import (
	"crypto/rand"
	"crypto/sha256"
	"maps"
	"slices"
	"sync"
	"time"
)

// The limits of sessions. A new one replaces the one of the same user, or of the tenant with the
// most sessions, that was used least recently.
const (
	sessionsMax        = 512
	sessionsPerUserMax = 8
	sessionAgeMax      = 12 * time.Hour
	sessionIdleMax     = time.Hour
)

// session is what a cookie refers to. The browser doesn't have the token.
type session struct {
	id       digest
	username string
	token    string
	created  time.Time
	// ended is closed when the user logs out, or when another session replaces this one.
	ended chan struct{}
	// lastUsed is protected by the lock of sessions.
	lastUsed time.Time
}

func (s *session) tenant() string { return tenantOf(s.username) }

// sessions are the sessions in memory.
type sessions struct {
	now func() time.Time

	mu  sync.Mutex
	all map[digest]*session
}

func newSessions() *sessions { return &sessions{now: time.Now, all: map[digest]*session{}} }

// create creates a session, and returns the value of its cookie.
func (s *sessions) create(username, token string) (cookie string) {
	cookie = rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, old := range s.all {
		if s.expired(old) {
			s.end(old)
		}
	}
	s.makeRoom(sessionsPerUserMax, func(old *session) bool { return old.username == username })
	if len(s.all) >= sessionsMax {
		largest, _ := largestTenant(slices.Collect(maps.Values(s.all)), (*session).tenant)
		s.makeRoom(1, func(old *session) bool { return old.tenant() == largest })
	}
	now := s.now()
	created := &session{id: cookieID(cookie), username: username, token: token, created: now, lastUsed: now, ended: make(chan struct{})}
	s.all[created.id] = created
	return cookie
}

// cookieID is by what sessions are found: how long a lookup takes depends on the hash, and
// not on the secret.
func cookieID(cookie string) digest { return sha256.Sum256([]byte(cookie)) }

// makeRoom ends the session that was used least recently of those that match, if there are
// so many. The caller holds the lock.
func (s *sessions) makeRoom(most int, matches func(*session) bool) {
	var found []*session
	for _, old := range s.all {
		if matches(old) {
			found = append(found, old)
		}
	}
	if len(found) >= most {
		s.end(slices.MinFunc(found, func(a, b *session) int { return a.lastUsed.Compare(b.lastUsed) }))
	}
}

// end ends a session. The caller holds the lock.
func (s *sessions) end(old *session) {
	if s.all[old.id] == old {
		delete(s.all, old.id)
		close(old.ended)
	}
}

func (s *sessions) expired(found *session) bool {
	now := s.now()
	return now.Sub(found.created) > sessionAgeMax || now.Sub(found.lastUsed) > sessionIdleMax
}

// use returns the session of a cookie, or nil.
func (s *sessions) use(cookie string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.all[cookieID(cookie)]
	switch {
	case found == nil:
		return nil
	case s.expired(found):
		s.end(found)
		return nil
	}
	found.lastUsed = s.now()
	return found
}

// extend marks a session as used. It returns false if the session has ended.
func (s *sessions) extend(found *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[found.id] != found || s.expired(found) {
		s.end(found)
		return false
	}
	found.lastUsed = s.now()
	return true
}

// delete ends a session.
func (s *sessions) delete(found *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(found)
}
