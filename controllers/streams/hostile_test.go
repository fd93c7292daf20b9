package streams_test

import (
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/conclave-dev/conclave/controllers/streams"
	"github.com/conclave-dev/conclave/internal/control"
	"github.com/conclave-dev/conclave/internal/understudy"
)

// An agent whose answer has no end to its header isn't listened to for as long as
// it likes: it would fill the memory of the operator of all others.
func TestEndlessHeaderIsNotRead(t *testing.T) {
	s := newStand(t)
	a := s.agent("ledger-0", "10.0.0.1", "ledger")
	var sent atomic.Int64
	over := make(chan struct{})
	speak := func(conn net.Conn) {
		line := "X-Much: " + strings.Repeat("a", 1<<16) + "\r\n"
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n"); err != nil {
			return
		}
		for {
			n, err := io.WriteString(conn, line)
			if err != nil || sent.Add(int64(n)) > 64<<20 {
				select {
				case over <- struct{}{}:
				case <-t.Context().Done():
				}
				return
			}
		}
	}
	if err := a.Speak(t.Context(), speak); err != nil {
		t.Fatal(err)
	}
	s.follow("ledger-0", "1", "10.0.0.1")
	<-over
	if most := int64(16 << 20); sent.Load() > most {
		t.Errorf("it was read for %d bytes, more than %d", sent.Load(), most)
	}
}

// A megabyte of nothing at all would be fifty in memory, for each of a hundred
// groups.
func TestReportOfTooManyRowsIsNotKept(t *testing.T) {
	s := newStand(t)
	a := s.agent("ledger-0", "10.0.0.1", "ledger", "audit")
	say(a, control.Report{Group: "ledger", UID: "u", Processes: make([]control.Row, 10_000)})
	say(a, control.Report{Group: "audit", UID: "u", Problems: make([]string, 100_000)})
	s.run(a)
	s.follow("ledger-0", "1", "10.0.0.1")
	s.await("something has come of it", func() bool {
		line, _ := s.Line(named("ledger-0"))
		return line.Connected || line.Problem != ""
	})
	for _, group := range []string{"ledger", "audit"} {
		if voice := s.Voices(named(group))["ledger-0"]; voice.Report != nil && len(voice.Report.Processes)+len(voice.Report.Problems) > 2000 {
			t.Errorf("%s: %d rows and %d problems are kept", group, len(voice.Report.Processes), len(voice.Report.Problems))
		}
	}
}

// Who can't be withheld, since nobody else could lead, may be when he reports again.
func TestWhoRefusesToBeWithheldIsToldAgain(t *testing.T) {
	s := newStand(t)
	a := s.agent("ledger-0", "10.0.0.1", "ledger")
	say(a, control.Report{Group: "ledger", UID: "u", Term: 1})
	var calls atomic.Int32
	a.Refuse(func(understudy.Call) int {
		if calls.Add(1) == 1 {
			return http.StatusConflict
		}
		return http.StatusNoContent
	})
	s.run(a)
	s.follow("ledger-0", "1", "10.0.0.1")
	s.await("it is connected", s.connected("ledger-0"))
	s.Tell(named("ledger-0"), streams.Standing("ledger", false))
	s.await("it has refused", func() bool { return calls.Load() == 1 })
	a.Change("ledger", func(r *control.Report) { r.Term = 2 })
	s.await("it says something else", s.says("ledger", "ledger-0", func(r control.Report) bool { return r.Term == 2 }))
	s.awaitToldAgain(func() bool { return calls.Load() >= 2 })
}

// A group that is joined anew, after it was made anew or left, knows nothing of
// what was told to the one before.
func TestWhoJoinsAnewIsWithheldAgain(t *testing.T) {
	s := newStand(t)
	a := s.agent("ledger-0", "10.0.0.1", "ledger")
	say(a, control.Report{Group: "ledger", UID: "u"})
	s.run(a)
	s.follow("ledger-0", "1", "10.0.0.1")
	s.await("it is connected", s.connected("ledger-0"))
	s.Tell(named("ledger-0"), streams.Standing("ledger", false))
	s.await("it was told", func() bool { return len(a.Calls()) == 1 })
	a.Change("ledger", func(r *control.Report) { r.Withheld = true })
	s.await("it does so", s.says("ledger", "ledger-0", func(r control.Report) bool { return r.Withheld }))
	a.Leave("ledger")
	say(a, control.Report{Group: "ledger", UID: "v", Standing: true})
	s.await("it is in another group", s.says("ledger", "ledger-0", func(r control.Report) bool { return r.UID == "v" }))
	s.awaitToldAgain(func() bool { return len(a.Calls()) >= 2 })
}

// awaitToldAgain waits until ledger-0 was told again, over the same connection.
func (s *stand) awaitToldAgain(told func() bool) {
	s.t.Helper()
	line, _ := s.Line(named("ledger-0"))
	s.await("it was told again, or the connection is another one", func() bool {
		s.Tell(named("ledger-0"), streams.Standing("ledger", false))
		now, _ := s.Line(named("ledger-0"))
		return told() || !reflect.DeepEqual(now, line)
	})
	if now, _ := s.Line(named("ledger-0")); !reflect.DeepEqual(now, line) {
		s.t.Error("it wasn't told again before it was connected anew")
	}
}
