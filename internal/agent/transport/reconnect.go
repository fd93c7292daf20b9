package transport

import (
	"context"
	"math/rand/v2"
	"time"
)

// run maintains the connection until the peer is removed.
func (p *peer) run() {
	defer p.failUnsent()
	brief := 0 // consecutive connections that were closed at once
	for !p.stopped() {
		if brief > 1 { // After the first one, check at once whether the process has ended.
			p.failUnsent()
			if next := p.waitForConn(time.After(min(jitteredRedialDelay(), time.Millisecond<<min(brief, 10)))); next != nil {
				brief = p.serveAll(next, brief)
				continue
			}
		}
		brief = p.serveAll(p.nextConn(), brief)
	}
}

// serveAll serves a connection and those that replace it. It returns the number of
// consecutive connections that were closed at once.
func (p *peer) serveAll(next *conn, brief int) int {
	for next != nil {
		switch {
		case p.lastConn == nil:
		case next.provesEnd(p.lastConn):
			p.transport.reportEnded(p.lastConn)
		case next.life == p.lastConn.life && next.listenAddress == p.lastConn.listenAddress:
			next.listenAddressVerified.Store(true) // By the previous connection.
		}
		served := next
		began := time.Now()
		next = p.serve(served)
		brief++
		if time.Since(began) > redialDelay {
			brief = 0
		}
		p.lastConn = nil
		if served.listenAddressVerified.Load() {
			p.setHint(hint{p.name, served.listenAddress})
			if !served.ended && !served.closedHere.Load() {
				p.lastConn = served
			}
		}
	}
	return brief
}

func (p *peer) stopped() bool { return p.ctx.Err() != nil || p.transport.closing.Load() }

func jitteredRedialDelay() time.Duration { return redialDelay/2 + rand.N(redialDelay) }

// nextConn returns the next connection, or nil when the peer is removed. It reports
// the end of the process of the last connection if its address refuses a new one.
//
// The address of a peer may be a name. Attempts alternate between the last address that the name had, and the name:
// without its name server, this agent must still find out that the process has ended, and connect again.
func (p *peer) nextConn() *conn {
	byName := false
	slow := 0 // consecutive handshakes that weren't completed in time
	for attempt := 0; ; attempt++ {
		ctx, cancel := context.WithCancel(p.ctx)
		next, result := p.tryConnect(ctx, attempt, byName)
		cancel()
		if next != nil || p.stopped() {
			return next
		}
		if result == unresponsive {
			slow++
		} else {
			slow = 0
		}
		if result == refused && p.lastConn != nil {
			p.transport.reportEnded(p.lastConn)
			p.lastConn = nil
		}
		if byName = (result == noAnswer || result == unresponsive) && !byName; byName && p.dials && p.lastConn != nil {
			p.failUnsent()
			continue // The peer may have another address by now.
		}
		if next := p.waitForConn(time.After(p.retryDelay(result, attempt, slow))); next != nil || p.stopped() {
			return next
		}
	}
}

func (p *peer) retryDelay(result dialResult, attempt, slow int) time.Duration {
	if result == connClosed && p.lastConn != nil && attempt < closedRetries {
		return min(time.Duration(attempt)*closedRetryStep, closedRetryMax)
	}
	p.failUnsent()
	switch {
	case p.lastConn != nil:
	case !p.hasTarget():
		return time.Hour // There is no address to dial.
	case !p.dials && attempt == 0:
		return p.transport.announceDelay()
	case !p.dials:
		return jitteredRedialDelay() * 5 << min(attempt, 6) // Most likely the peer will dial.
	}
	if slow > 0 {
		return jitteredRedialDelay() << min(slow-1, slowMax)
	}
	if attempt > patientAttempts {
		return jitteredRedialDelay() * patientFactor
	}
	return jitteredRedialDelay()
}

// announceDelay is the time that a peer has to dial before this agent announces itself. If this process replaces one
// that was killed, the peer has just failed to dial it, and waits for longer. With more peers the delay is longer: they
// may all start at once.
func (t *Transport) announceDelay() time.Duration {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return jitteredRedialDelay() * time.Duration(len(t.peers)) / 50
}

// After about a minute of attempts in vain, an agent dials every 1.6 s on average: an isolated one doesn't keep a
// processor busy. It dials earlier if another agent tells where the peer is.
const (
	patientAttempts = 200
	patientFactor   = 8
)

// slowMax bounds the exponential backoff for a peer that doesn't complete handshakes, to 6.4 s on average. The
// processors may have too much to do, and a handshake costs them more than any other attempt.
const slowMax = 5

// waitForConn waits before the next attempt. It returns early, with a connection if
// the peer has established one, or nil if an attempt is worthwhile now.
func (p *peer) waitForConn(again <-chan time.Time) *conn {
	select {
	case <-again:
	case <-p.retryNow:
	case next := <-p.accepted:
		return next
	case <-p.ctx.Done():
	}
	return nil
}

type dialOutcome struct {
	conn   *conn
	result dialResult
}

// tryConnect makes one attempt to reach the peer. An incoming connection ends it.
func (p *peer) tryConnect(ctx context.Context, attempt int, byName bool) (*conn, dialResult) {
	try := p.attemptFunc(attempt, byName)
	if try == nil {
		return nil, noAnswer
	}
	tried := make(chan dialOutcome)
	p.transport.tasks.Go(func() {
		o := try(ctx)
		select {
		case tried <- o:
		case <-ctx.Done():
			if o.conn != nil {
				o.conn.close()
			}
		}
	})
	select {
	case o := <-tried:
		return o.conn, o.result
	case c := <-p.accepted:
		return c, noAnswer
	case <-p.ctx.Done():
		return nil, noAnswer
	}
}

// attemptFunc returns what to do in an attempt, or nil for nothing. The side that accepts connections checks whether a
// process still listens at the peer's last address; or, if no connection arrives, it announces its own address.
func (p *peer) attemptFunc(attempt int, byName bool) func(context.Context) dialOutcome {
	lastAddress := ""
	if p.lastConn != nil {
		lastAddress = p.lastConn.listenAddress
	}
	switch {
	case !p.hasTarget() && lastAddress == "":
		return nil // The peer may dial, and announce its address.
	case p.dials:
		target := p.target()
		if !byName && p.lastConn != nil && p.lastConn.dialedTarget == target {
			return func(ctx context.Context) dialOutcome { return p.dial(ctx, target, lastAddress, lastAddress) }
		}
		next := p.nextTarget()
		return func(ctx context.Context) dialOutcome { return p.dial(ctx, next, next, lastAddress) }
	case lastAddress != "":
		return func(ctx context.Context) dialOutcome {
			err := p.transport.probeListener(ctx, lastAddress)
			p.noteFailure(ctx, err)
			return dialOutcome{nil, resultOf(err, lastAddress)}
		}
	case attempt > 0:
		return p.announce
	}
	return nil
}

// dial dials an address, which is target or an address that target had.
func (p *peer) dial(ctx context.Context, target, address, lastAddress string) dialOutcome {
	c, err := p.transport.connect(ctx, address, p.name)
	result := resultOf(err, lastAddress)
	switch {
	case err == nil:
		c.dialedTarget = target
		p.useHint(target)
	case result != connClosed:
		p.clearAnnounced(address)
	}
	return dialOutcome{c, result}
}

// announce dials a peer that should have dialed. The peer learns the address of
// this agent from its Hello, and dials back.
func (p *peer) announce(ctx context.Context) dialOutcome {
	if c, err := p.transport.connect(ctx, p.nextTarget(), p.name); err == nil {
		c.close()
	}
	return dialOutcome{}
}

// checkUnverified finds out whether the address at which the process at the other end of a closed connection
// should listen refuses a new connection. See closedRetries for a process that is being killed.
func (p *peer) checkUnverified(c *conn) {
	for attempt := range closedRetries {
		ctx, cancel := context.WithTimeout(p.ctx, dialTimeout)
		result := resultOf(p.transport.probeListener(ctx, c.listenAddress), c.listenAddress)
		cancel()
		if result == refused && p.current() == nil && !p.stopped() {
			p.transport.Events.PeerRefused(p.name)
			p.transport.Log.Info("peer process has probably ended: its unverified address refuses connections", "peer", p.name,
				"address", c.listenAddress)
		}
		if result != connClosed {
			return
		}
		select {
		case <-time.After(min(time.Duration(attempt)*closedRetryStep, closedRetryMax)):
		case <-p.ctx.Done():
			return
		}
	}
}

// callBack verifies that the process that established a connection listens at the assumed address.
func (p *peer) callBack(ctx context.Context, c *conn) {
	for {
		if same, err := p.transport.connect(ctx, c.listenAddress, p.name); err == nil {
			same.close()
			if same.life == c.life {
				c.listenAddressVerified.Store(true)
				p.transport.spreadAddress(p)
				p.transport.Log.Debug("verified listening address of peer", "peer", p.name, "address", c.listenAddress)
			}
			return
		}
		select {
		case <-time.After(callBackInterval):
		case <-ctx.Done():
			return
		}
	}
}
