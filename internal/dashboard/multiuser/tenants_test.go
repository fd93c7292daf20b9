package multiuser

import (
	"fmt"
	"testing"
)

// The service accounts of one namespace are one tenant: they can't keep others from opening a page, or end their sessions.
func TestTenantsShareStreamsAndSessions(t *testing.T) {
	var streams openStreams
	ended := map[string]int{}
	open := func(username string) bool {
		_, ok := streams.add(username, func() { ended[username]++ })
		return ok
	}
	account := func(n int) string { return fmt.Sprintf("system:serviceaccount:evil:a%d", n) }
	for n := range 8 {
		for range streamsPerUserMax {
			open(account(n))
		}
	}
	if got := len(streams.all); got != streamsMax {
		t.Fatalf("got %d streams, want %d", got, streamsMax)
	}
	if open(account(9)) {
		t.Error("another service account of the namespace got a stream, want it refused")
	}
	for i := range streamsPerUserMax {
		if !open("alice") {
			t.Fatalf("alice got %d streams, want %d", i, streamsPerUserMax)
		}
	}
	if open("alice") {
		t.Errorf("alice got more than %d streams", streamsPerUserMax)
	}
	if total := len(ended); ended["alice"] != 0 || total == 0 || len(streams.all) != streamsMax {
		t.Errorf("got ended streams %v and %d open ones, want those of the namespace to have ended", ended, len(streams.all))
	}
	// Users who have as much as any tenant don't take turns in ending each other's streams.
	var crowd openStreams
	for n := range streamsMax {
		crowd.add(fmt.Sprint("user", n), func() { t.Error("a stream was ended") })
	}
	if _, ok := crowd.add("late", nil); ok {
		t.Error("another user got a stream, want it refused")
	}

	sessions := newSessions()
	alice := sessions.create("alice", "token")
	for n := range 2 * sessionsMax {
		sessions.create(account(n), "token")
	}
	if len(sessions.all) != sessionsMax || sessions.use(alice) == nil {
		t.Errorf("got %d sessions, and alice's %v; want %d, with hers", len(sessions.all), sessions.use(alice), sessionsMax)
	}
}

func TestRemovedStreamsMakeRoom(t *testing.T) {
	var streams openStreams
	remove, _ := streams.add("alice", nil)
	streams.add("bob", nil)
	if got := streams.users(); got != 2 {
		t.Errorf("got %d users, want 2", got)
	}
	remove()
	if got := streams.users(); got != 1 {
		t.Errorf("got %d users after the end of a stream, want 1", got)
	}
}
