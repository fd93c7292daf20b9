package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

func TestBytesArriveInBothDirectionsAtOnce(t *testing.T) {
	for _, address := range []string{loopback, "::1"} {
		w := newWorld(t, limits, unchanged)
		w.serve(address, echo)
		w.set(coordinator(1, address))
		data := bytes.Repeat([]byte("0123456789"), 1<<20)
		c := w.dial()
		go func() {
			_, _ = c.Write(data)
			_ = c.CloseWrite() // The application closes its direction only after this.
		}()
		back, err := io.ReadAll(c)
		must.Succeed(t, err)
		expect.Equalf(t, bytes.Equal(back, data), true, "same bytes back")
		w.awaitEnded(Completed, 1)
		expect.Equalf(t, min(w.Stats.FromClients.Load(), w.Stats.ToClients.Load()), uint64(len(data)), "bytes counted")
		expect.Equalf(t, len(w.proxy.open), 0, "open connections")
		testwait.Until(t, "large buffers are given back", func() bool { return w.shared.large.Load() == 0 })
	}
}

func TestResetsPass(t *testing.T) {
	w := newWorld(t, limits, unchanged)
	ended := make(chan error, 1)
	w.serve(loopback, func(c *net.TCPConn) {
		request := make([]byte, 5)
		_, _ = io.ReadFull(c, request)
		if string(request) == "reset" {
			_ = c.SetLinger(0)
			return
		}
		_, _ = c.Write(request)
		_, err := c.Read(request)
		ended <- err
	})
	w.set(coordinator(1, loopback))
	c := w.dial()
	_, err := c.Write([]byte("reset"))
	must.Succeed(t, err)
	expectReset(t, c)
	c = w.dial()
	exchange(t, c)
	must.Succeed(t, errors.Join(c.SetLinger(0), c.Close()))
	expect.ErrorIsf(t, testwait.Receive(t, "a reset", ended), syscall.ECONNRESET, "end")
	w.awaitEnded(Broken, 2)
}

func TestConnectionsWaitForCoordinatorAndItsAddress(t *testing.T) {
	w := newWorld(t, limits, unchanged)
	w.serve("127.0.0.2", func(c *net.TCPConn) { // It answers only when the client has sent all.
		request, _ := io.ReadAll(c)
		_, _ = c.Write(request)
	})
	clients := make([]*net.TCPConn, 100)
	for i := range clients {
		clients[i] = w.dial()
		_, err := clients[i].Write([]byte("request"))
		must.Succeed(t, errors.Join(err, clients[i].CloseWrite()))
	}
	w.awaitWaiting(int64(len(clients)))
	w.set(Coordinator{Name: "a", Term: 1})
	w.set(Coordinator{Name: "a", Term: 1, Stops: true, Address: netip.MustParseAddr(loopback)})
	w.awaitWaiting(int64(len(clients)))
	w.set(coordinator(2, "127.0.0.2"))
	for _, c := range clients {
		got, err := io.ReadAll(c)
		must.Succeed(t, err)
		must.Equalf(t, string(got), "request", "answer")
	}
	waits := w.Stats.Waits()
	expect.Equalf(t, waits[len(waits)-1].Connections, uint64(len(clients)), "connections that waited")
	expect.Equalf(t, w.Stats.FailedDials.Load(), 0, "failed attempts")
}

func TestConnectionsWaitOnlySoLong(t *testing.T) {
	const wait = 100 * time.Millisecond
	w := newWorld(t, limits, func(s *Service) { s.Wait = wait })
	for i := range 2 {
		began := time.Now()
		expectReset(t, w.dial())
		expect.AtLeastf(t, time.Since(began), wait, "time until the reset")
		w.awaitEnded(WaitedInVain, int64(i+1))
		w.set(coordinator(1, loopback)) // Nothing listens there.
	}
	expect.AtMostf(t, w.Stats.FailedDials.Load(), uint64(wait/retryMax+20), "attempts of one connection")
	late := w.dial()
	testwait.Until(t, "another attempt", func() bool { return w.Stats.Waiting.Load() == 1 })
	w.serve(loopback, echo)
	exchange(t, late)
	none := newWorld(t, limits, func(s *Service) { s.Wait = 0 })
	expectRefusal(t, none.Ports[0])
}

// TestWaits: those connections count that waited for a coordinator, an application that listens late included, and none
// that came later.
func TestWaits(t *testing.T) {
	const wait, before = time.Second, 4 * retryMax
	w := newWorld(t, limits, func(s *Service) { s.Wait = wait })
	expectReset(t, w.dial())
	w.awaitEnded(WaitedInVain, 1)
	first := w.dial()
	w.awaitWaiting(1)
	time.Sleep(before)
	w.set(coordinator(1, loopback))
	testwait.Until(t, "the first attempt", func() bool { return w.Stats.FailedDials.Load() > 0 })
	second := w.dial()
	w.awaitWaiting(2)
	failed := w.Stats.FailedDials.Load()
	testwait.Until(t, "the next attempts", func() bool { return w.Stats.FailedDials.Load() > failed+1 })
	w.serve(loopback, echo)
	exchange(t, first)
	exchange(t, second)
	exchange(t, w.dial())
	w.set(coordinator(2, "127.0.0.3"))
	expectReset(t, w.dial())
	w.awaitEnded(WaitedInVain, 2)
	waits := w.Stats.Waits()
	must.Equalf(t, len(waits), 2, "terms")
	longest := time.Duration(waits[0].LongestMicros) * time.Microsecond
	if longest < before || longest > wait {
		t.Errorf("the longest wait: got %s, want at least %s and at most %s", longest, before, wait)
	}
	waits[0].LongestMicros = 0
	expect.DeepEqualf(t, waits, []control.Wait{{Term: 1, Connections: 2, InVain: 1}, {Term: 2, InVain: 1}}, "waits")
	w.Stats.FailedDials.Store(7)
	w.Stats.Ended[TooMany].Store(4)
	w.Stats.Ended[TooSlow].Store(5)
	expect.DeepEqualf(t, *w.Stats.Report(),
		control.Connections{WaitedInVain: 2, Reset: 3, Refused: 9, FailedDials: 7}, "report")
	for term := range uint64(2 * maxWaits) {
		w.set(coordinator(term+3, loopback))
	}
	waits = w.Stats.Waits()
	expect.Equalf(t, len(waits), maxWaits, "terms that are remembered")
	expect.Equalf(t, waits[maxWaits-1].Term, 2*maxWaits+2, "the last one")
}

func TestUnreachableCoordinatorDoesntDelayItsSuccessor(t *testing.T) {
	w := newWorld(t, limits, unchanged)
	w.serve("127.0.0.2", echo)
	full, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	must.Succeed(t, err)
	defer syscall.Close(full)
	at := &syscall.SockaddrInet4{Port: int(w.Ports[0].Port), Addr: [4]byte{127, 0, 0, 1}}
	must.Succeed(t, errors.Join(syscall.Bind(full, at), syscall.Listen(full, 0))) // It drops what doesn't fit.
	w.set(coordinator(1, loopback))
	first := w.dial()
	testwait.Until(t, "the backlog is full", func() bool {
		return w.Stats.Connections.Load() == 1 && w.Stats.Waiting.Load() == 0
	})
	c := w.dial()
	testwait.Until(t, "an attempt without answer", func() bool { return w.Stats.FailedDials.Load() > 0 })
	time.Sleep(4 * retryMax) // The next attempt has begun.
	before := w.Stats.FailedDials.Load()
	w.set(coordinator(2, "127.0.0.2"))
	exchange(t, c)
	expect.Equalf(t, w.Stats.FailedDials.Load(), before, "failed attempts: those at the former coordinator are given up")
	expectReset(t, first)
}

func TestConnectionsEndWithTheTenure(t *testing.T) {
	led := coordinator(1, loopback)
	own := led
	own.Self = true
	for name, c := range map[string]struct {
		before, after Coordinator
		reset         bool
	}{
		"another coordinator":   {led, Coordinator{Name: "b", Term: 2}, true},
		"another term":          {led, Coordinator{Name: "a", Term: 2}, true},
		"own tenure lost":       {own, Coordinator{}, true},
		"coordinator suspected": {led, Coordinator{}, false},
		"hand-over":             {own, Coordinator{Name: "a", Term: 1, Self: true, Stops: true}, false},
	} {
		for _, keep := range []bool{false, true} {
			w := newWorld(t, limits, func(s *Service) { s.Keep = keep })
			w.serve(loopback, echo)
			w.set(c.before)
			client := w.dial()
			exchange(t, client)
			t.Log(name)
			if w.set(c.after); c.reset && !keep {
				expectReset(t, client)
				w.awaitEnded(CoordinatorChanged, 1)
			} else {
				exchange(t, client)
			}
		}
	}
}

func TestSuspicionMayPass(t *testing.T) {
	const wait = 100 * time.Millisecond
	w := newWorld(t, limits, func(s *Service) { s.Wait = wait })
	w.serve(loopback, echo)
	w.set(coordinator(1, loopback))
	c := w.dial()
	exchange(t, c)
	w.set(Coordinator{})
	w.set(coordinator(1, loopback))
	time.Sleep(2 * wait)
	exchange(t, c)
	began := time.Now()
	w.set(Coordinator{})
	expectReset(t, c)
	expect.AtLeastf(t, time.Since(began), wait, "time until the reset")
	w.set(coordinator(1, loopback))
	exchange(t, w.dial())
}

// TestLastAnswersArrive: an application answers, and confirms then that it has stopped. The proxy may learn of all that
// at once.
func TestLastAnswersArrive(t *testing.T) {
	w := newWorld(t, limits, unchanged)
	accepted := make(chan *net.TCPConn, 100)
	w.serve(loopback, func(c *net.TCPConn) {
		accepted <- c
		<-t.Context().Done()
	})
	w.set(coordinator(1, loopback))
	var clients, ends []*net.TCPConn
	for range cap(accepted) {
		clients = append(clients, w.dial())
		ends = append(ends, testwait.Receive(t, "a connection", accepted))
	}
	w.awaitWaiting(0)
	last := <-w.shared.turns.last // The proxy moves nothing meanwhile.
	for _, c := range ends {
		_, err := c.Write([]byte("answer"))
		must.Succeed(t, err)
	}
	go w.set(coordinator(2, loopback))
	testwait.Until(t, "the end of the tenure", func() bool {
		w.proxy.mu.Lock()
		defer w.proxy.mu.Unlock()
		return w.proxy.now.Term == 2
	})
	w.shared.turns.last <- last
	for _, c := range clients {
		_, err := io.ReadFull(c, make([]byte, 6))
		must.Succeedf(t, err, "the last answer")
		expectReset(t, c)
	}
}

func TestReadersMayPause(t *testing.T) {
	const pipes, more, buffersMax = 4, 32 << 20, 8 << 20
	limits := limits
	limits.Pipes = pipes
	w := newWorld(t, limits, unchanged)
	var sent atomic.Int64
	w.serve(loopback, func(c *net.TCPConn) {
		for n, err := c.Write([]byte{0}); err == nil; n, err = c.Write(make([]byte, 1<<16)) {
			sent.Add(int64(n))
		}
	})
	w.set(coordinator(1, loopback))
	clients := make([]*net.TCPConn, pipes)
	for i := range clients {
		clients[i] = w.dial()
		testwait.Until(t, "pipes are full", func() bool { return len(w.shared.pipes) < pipes-i })
	}
	time.Sleep(patience)
	expect.AtMostf(t, sent.Load()/pipes, buffersMax, "bytes that were sent, but not read")
	_, err := io.CopyN(io.Discard, w.dial(), more)
	must.Succeedf(t, err, "a connection whose client reads")
	testwait.Until(t, "a pipe for it", func() bool { return w.Stats.Ended[TooSlow].Load() > 0 })
	expect.AtMostf(t, w.Stats.Ended[TooSlow].Load(), 2, "connections that gave up a pipe, perhaps one to end the other")
	_, err = io.CopyN(io.Discard, clients[0], 1)
	must.Succeed(t, err)
}

// TestOthersHaveTheirTurn: messages between other sockets arrive while many connections are reset.
func TestOthersHaveTheirTurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // as in an agent
	const connections = 900
	w := newWorld(t, limits, unchanged)
	w.serve(loopback, echo)
	w.set(coordinator(1, loopback))
	for range connections {
		exchange(t, w.dial())
	}
	peer, messages := dial(t, control.ServicePort{Listen: fmt.Sprintf("%s:%d", loopback, w.Ports[0].Port)}), 0
	go w.set(coordinator(2, loopback))
	for ; w.Stats.Ended[CoordinatorChanged].Load() < connections; messages++ {
		exchange(t, peer)
	}
	expect.AtLeastf(t, messages, 20, "messages")
}

func TestLimits(t *testing.T) {
	limits := Limits{Connections: 8, GroupConnections: 5, Waiting: 3, Pipes: 4}
	w := newWorld(t, limits, unchanged)
	other, port := w.Service, control.ServicePort{Listen: freePort(t).Listen, Port: w.Ports[0].Port}
	other.Ports, other.Stats = []control.ServicePort{port}, &Stats{}
	otherProxy, err := Serve(t.Context(), w.shared, other)
	must.Succeed(t, err)
	t.Cleanup(otherProxy.Close)
	clients := []*net.TCPConn{w.dial(), w.dial(), w.dial()}
	w.awaitWaiting(int64(limits.Waiting))
	expectRefusal(t, w.Ports[0])
	w.set(coordinator(1, loopback))
	otherProxy.Update()
	clients = append(clients, w.dial())
	w.awaitWaiting(int64(limits.Waiting) + 1) // for an application that doesn't listen yet
	w.serve(loopback, echo)
	for _, c := range clients {
		exchange(t, c)
	}
	exchange(t, w.dial())
	for range 2 {
		exchange(t, dial(t, port))
	}
	expectRefusal(t, w.Ports[0])
	exchange(t, dial(t, port))
	expectRefusal(t, port)
	w.awaitEnded(TooMany, 2)
	must.Succeed(t, clients[0].Close())
	w.awaitEnded(Completed, 1)
	exchange(t, dial(t, port))
}

func TestNothingRemainsAfterClose(t *testing.T) {
	files := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		must.Succeed(t, err)
		return len(entries)
	}
	before, goroutines := files(), runtime.NumGoroutine()
	t.Run("", func(t *testing.T) {
		w := newWorld(t, limits, unchanged)
		w.serve(loopback, echo)
		w.set(coordinator(1, loopback))
		open := w.dial()
		exchange(t, open)
		_, err := Serve(t.Context(), w.shared, w.Service)
		expect.ErrorIsf(t, err, syscall.EADDRINUSE, "a second service on the same port")
		own := w.Service
		own.Ports = []control.ServicePort{{Listen: ":0", Port: 8080}, {Listen: ":8080", Port: 8081}}
		_, err = Serve(t.Context(), w.shared, own)
		expect.ErrorContainsf(t, err, "a port of the application", "a service on a port of its application")
		w.set(Coordinator{})
		waits := w.dial()
		w.awaitWaiting(1)
		must.Succeed(t, open.SetWriteDeadline(time.Now().Add(time.Second)))
		_, err = open.Write(make([]byte, 64<<20)) // Nobody reads the echo, so a pipe remains full.
		expect.ErrorIsf(t, err, os.ErrDeadlineExceeded, "writing without reading")
		w.proxy.Close()
		expect.Lenf(t, w.shared.proxies, 0, "proxies")
		expectReset(t, open)
		expectReset(t, waits)
		w.awaitEnded(Stopped, 2)
		_, err = net.Dial("tcp", w.Ports[0].Listen)
		expect.ErrorIsf(t, err, syscall.ECONNREFUSED, "a connection after Close")
		w.set(coordinator(2, loopback))
		w.proxy.Close()
	})
	testwait.Until(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= goroutines })
	testwait.Until(t, "files are closed", func() bool { return files() <= before })
}
