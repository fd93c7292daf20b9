package streams_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/conclave-dev/conclave/controllers/streams"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
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
	if err := a.ServeRaw(t.Context(), speak); err != nil {
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
		line, _ := s.Connection(named("ledger-0"))
		return line.Connected || line.Problem != ""
	})
	for _, group := range []string{"ledger", "audit"} {
		if voice := s.Reports(named(group))["ledger-0"]; voice.Report != nil && len(voice.Report.Processes)+len(voice.Report.Problems) > 2000 {
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
	a.Refuse(func(fakeagent.Call) int {
		if calls.Add(1) == 1 {
			return http.StatusConflict
		}
		return http.StatusNoContent
	})
	s.run(a)
	s.follow("ledger-0", "1", "10.0.0.1")
	s.await("it is connected", s.connected("ledger-0"))
	s.Send(named("ledger-0"), streams.SetEligible("ledger", false))
	s.await("it has refused", func() bool { return calls.Load() == 1 })
	a.ChangeReport("ledger", func(r *control.Report) { r.Term = 2 })
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
	s.Send(named("ledger-0"), streams.SetEligible("ledger", false))
	s.await("it was told", func() bool { return len(a.Calls()) == 1 })
	a.ChangeReport("ledger", func(r *control.Report) { r.Excluded = true })
	s.await("it does so", s.says("ledger", "ledger-0", func(r control.Report) bool { return r.Excluded }))
	a.Leave("ledger")
	say(a, control.Report{Group: "ledger", UID: "v", Eligible: true})
	s.await("it is in another group", s.says("ledger", "ledger-0", func(r control.Report) bool { return r.UID == "v" }))
	s.awaitToldAgain(func() bool { return len(a.Calls()) >= 2 })
}

// awaitToldAgain waits until ledger-0 was told again, over the same connection.
func (s *stand) awaitToldAgain(told func() bool) {
	s.t.Helper()
	line, _ := s.Connection(named("ledger-0"))
	s.await("it was told again, or the connection is another one", func() bool {
		s.Send(named("ledger-0"), streams.SetEligible("ledger", false))
		now, _ := s.Connection(named("ledger-0"))
		return told() || !reflect.DeepEqual(now, line)
	})
	if now, _ := s.Connection(named("ledger-0")); !reflect.DeepEqual(now, line) {
		s.t.Error("it wasn't told again before it was connected anew")
	}
}

// heardOf is how often there was news of a pod's agent in a group.
func (s *stand) heardOf(pod, group string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := 0
	for _, news := range s.news {
		if news == pod+"/"+group {
			count++
		}
	}
	return count
}

// What several elections at once would make is news at once, each of it.
func TestEachOfSomeReportsIsNews(t *testing.T) {
	s := newStand(t)
	a := s.agent("ledger-0", "10.0.0.1", "ledger")
	say(a, control.Report{Group: "ledger", UID: "u"})
	s.run(a)
	s.follow("ledger-0", "1", "10.0.0.1")
	s.await("it is connected", s.connected("ledger-0"))
	for term := range uint64(40) {
		a.ChangeReport("ledger", func(r *control.Report) { r.Term = term + 1 })
		s.await("it is heard", s.says("ledger", "ledger-0", func(r control.Report) bool { return r.Term == term+1 }))
	}
	s.await("each was news", func() bool { return s.heardOf("ledger-0", "ledger") == 40 })
}

// An agent that says something new all the time is believed now and then, and in
// the end what it has said last.
func TestRestlessAgentIsNewsNowAndThen(t *testing.T) {
	s := newStand(t)
	began := time.Now()
	a := s.agent("ledger-0", "10.0.0.1", "ledger", "audit")
	const reports = 5000
	err := a.ServeRaw(t.Context(), func(conn net.Conn) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\nevent: current\ndata: {}\n\n")
		for term := range reports {
			_, _ = fmt.Fprintf(conn, "event: group\ndata: {\"group\":\"ledger\",\"uid\":\"u\",\"term\":%d}\n\n", term+1)
			if term%100 == 0 {
				_, _ = io.WriteString(conn, "event: left\ndata: {\"group\":\"audit\"}\n\n")
			}
		}
		<-t.Context().Done()
	})
	if err != nil {
		t.Fatal(err)
	}
	s.follow("ledger-0", "1", "10.0.0.1")
	seen := map[uint64]bool{}
	s.await("the last is heard", s.says("ledger", "ledger-0", func(r control.Report) bool {
		seen[r.Term] = true
		return r.Term == reports
	}))
	most := streams.NewsBurst(2) + int(streams.NewsRate*time.Since(began).Seconds()) + 2
	if news := s.heardOf("ledger-0", "ledger") + s.heardOf("ledger-0", "audit"); news > most {
		t.Errorf("it had something new %d times, and is believed %d times at most", news, most)
	}
	if len(seen) > most {
		t.Errorf("whoever had looked would have found %d different reports, and %d at most are meant to be", len(seen), most)
	}
}

// What an agent had said last counts, although it wasn't its turn, when it has ended.
func TestLastWordsOfARestlessAgent(t *testing.T) {
	s := newStand(t)
	a := s.agent("ledger-0", "10.0.0.1", "ledger")
	var ended atomic.Bool
	err := a.ServeRaw(t.Context(), func(conn net.Conn) {
		if ended.Swap(true) {
			return
		}
		said := "HTTP/1.1 200 OK\r\n\r\nevent: current\ndata: {}\n\n"
		for term := range 200 {
			said += fmt.Sprintf("event: group\ndata: {\"group\":\"ledger\",\"uid\":\"u\",\"term\":%d}\n\n", term+1)
		}
		_, _ = io.WriteString(conn, said)
	})
	if err != nil {
		t.Fatal(err)
	}
	s.follow("ledger-0", "1", "10.0.0.1")
	s.await("the last is heard", s.says("ledger", "ledger-0", func(r control.Report) bool { return r.Term == 200 }))
}

// Who says again and again that all has been said would have all its groups be
// looked at each time.
func TestWhoBeginsTwiceIsNotHeard(t *testing.T) {
	s := newStand(t)
	a := s.agent("ledger-0", "10.0.0.1", "ledger")
	err := a.ServeRaw(t.Context(), func(conn net.Conn) {
		request, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil || request.URL.Path != control.ReportsPath {
			return
		}
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
			return
		}
		for {
			if _, err := io.WriteString(conn, "event: current\ndata: {\"groups\":[\"ledger\"]}\n\n"); err != nil {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	s.follow("ledger-0", "1", "10.0.0.1")
	s.await("it is known why", func() bool {
		line, _ := s.Connection(named("ledger-0"))
		return line.Problem == "it says something else than expected: that all has been said, for the second time"
	})
}

// An agent that never stops talking takes a bounded part of the operator's time.
func TestTalkerIsReadSlowly(t *testing.T) {
	s := &stand{wardrobe: newWardrobe(t)}
	const buffer = 64 << 10
	s.start(t, streams.Options{Credentials: s.wardrobe, Log: logr.Discard(), Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := s.network.Dial(ctx, network, address)
		if tcp, ok := conn.(*net.TCPConn); ok {
			err = tcp.SetReadBuffer(buffer)
		}
		return conn, err
	}})
	a := s.agent("ledger-0", "10.0.0.1", "ledger")
	const enough = streams.BulkBurst + 2<<20
	began, heard := time.Now(), make(chan int, 1)
	err := a.ServeRaw(t.Context(), func(conn net.Conn) {
		raw := conn
		for {
			around, ok := raw.(interface{ NetConn() net.Conn })
			if !ok {
				break
			}
			raw = around.NetConn()
		}
		if tcp, ok := raw.(*net.TCPConn); ok {
			_ = tcp.SetWriteBuffer(buffer)
		}
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
			return
		}
		line, sent := ":"+strings.Repeat("a", 1000)+"\n", 0
		for sent < enough {
			n, err := io.WriteString(conn, line)
			if sent += n; err != nil {
				break
			}
		}
		heard <- sent
	})
	if err != nil {
		t.Fatal(err)
	}
	s.follow("ledger-0", "1", "10.0.0.1")
	sent := <-heard
	if most := streams.BulkBurst + int(streams.BulkRate*time.Since(began).Seconds()) + 1<<20; sent < enough || sent > most {
		t.Errorf("%d bytes of it were read, and %d at most are meant to be", sent, most)
	}
}
