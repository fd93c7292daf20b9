package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/internal/agent/clock"
)

const (
	// orderTimeout bounds how long the wrapper waits for a guard that doesn't read.
	orderTimeout = 50 * time.Millisecond
	// reportAfter is how long processes may survive SIGKILL before the wrapper reports it.
	reportAfter = time.Second
)

type tenure struct {
	*wrapper

	machine *machine
	cgroup  *cgroup
	orders  *os.File
	// killAt is what the guard knows.
	killAt time.Duration
	// killing is since when everything is killed, and reported whether it was reported that this takes long.
	killing  time.Duration
	reported bool
}

// lead runs the program. It returns when nothing of the program is left.
func (w *wrapper) lead(ctx context.Context, token uint64) {
	first := w.renewal()
	w.ended, w.status = revoked, 0
	switch {
	case first.Token != token || first.Ended: // The tenure has ended already.
		return
	case first.Lease > first.DrainTimeout:
		w.refused = fmt.Errorf("the group's drainMillis must be at least leaseMillis for this command, got %d and %d",
			first.DrainTimeout.Milliseconds(), first.Lease.Milliseconds())
		return
	case w.lease != nil && first.Lease > w.lease.renewDeadline:
		w.refused = fmt.Errorf("the group's leaseMillis must be at most two thirds of the Lease's duration, got %d and %s",
			first.Lease.Milliseconds(), w.lease.duration)
		return
	}
	for len(w.signals) > 0 {
		<-w.signals // They were for an earlier program.
	}
	w.setLeads(true)
	defer w.setLeads(false)
	t := &tenure{wrapper: w, machine: newMachine(first), cgroup: newCgroup(token)}
	defer t.cgroup.remove()
	if err := t.start(first); err != nil {
		w.refused = err
		return
	}
	w.Log.Info("started program", "group", w.Group, "term", first.Term, "token", token)
	t.run(ctx)
	w.ended, w.status = t.machine.ended, t.machine.status
	if w.foreground {
		_ = unix.IoctlSetPointerInt(unix.Stdin, unix.TIOCSPGRP, unix.Getpgrp()) // The terminal may have gone.
	}
	w.Log.Info("program has ended", "group", w.Group, "term", first.Term, "token", token, "status", w.status)
}

func (t *tenure) start(first client.Renewal) error {
	guardSide, ownSide, err := os.Pipe()
	if err != nil {
		return err
	}
	defer guardSide.Close()
	argv := []string{os.Args[0], "guard"}
	if t.cgroup != nil {
		argv = append(argv, "--cgroup", t.cgroup.path)
	}
	if t.foreground {
		argv = append(argv, "--foreground")
	}
	connections := t.connections.duplicates()
	defer func() {
		for _, fd := range connections {
			_ = unix.Close(int(fd)) // The guard has it.
		}
	}()
	attr := &syscall.ProcAttr{
		Env: append(os.Environ(), "CONCLAVE_GROUP="+t.Group, "CONCLAVE_MEMBER="+first.Self,
			"CONCLAVE_TERM="+strconv.FormatUint(first.Term, 10), "CONCLAVE_TOKEN="+strconv.FormatUint(first.Token, 10)),
		Files: append([]uintptr{0, 1, 2, guardSide.Fd()}, connections...),
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	}
	if err := t.family.start("/proc/self/exe", append(append(argv, "--", t.path), t.Command...), attr); err != nil {
		return errors.Join(fmt.Errorf("cannot start the guard: %w", err), ownSide.Close())
	}
	t.orders = ownSide
	return nil
}

func (t *tenure) run(ctx context.Context) {
	defer t.orders.Close()
	ended := ctx.Done()
	t.apply(output{})
	for {
		in := input{kind: timePassed}
		select {
		case <-t.renewed:
			in.kind, in.renewal = renewed, t.renewal()
			if in.renewal.Ended {
				in.kind = tenureEnded
			}
		case <-ended:
			ended = nil
			switch cause := context.Cause(ctx); {
			case errors.Is(cause, client.ErrStop):
				in.kind = stopRequested
			case errors.Is(cause, errNotRenewed), errors.Is(cause, client.ErrLost), errors.Is(cause, client.ErrNotRenewed),
				errors.Is(cause, client.ErrAgentGone):
				in.kind = tenureEnded
			}
		case s := <-t.signals:
			if in.kind, in.signal = terminated, s; !endsWrapper(s) {
				t.order(order{Signal: s})
				continue
			}
		case <-t.family.changed:
			if in.status = t.family.mainStatus(); in.status >= 0 {
				in.kind = guardEnded
			}
		case <-t.due:
		}
		if t.machine.killing && t.family.reap() {
			in.kind, in.status = noneLeft, t.family.mainStatus()
		}
		in.now = clock.Boottime()
		out := t.machine.step(in)
		if out.done {
			reportLate(t.Log, in.now-t.machine.At()-t.machine.Margin())
			return
		}
		t.apply(out)
	}
}

func (t *tenure) apply(out output) {
	if at := t.machine.At(); at != t.killAt || out.signal != 0 {
		t.killAt = at
		t.order(order{KillAt: at, End: at + t.machine.Margin(), Signal: out.signal})
	}
	if !out.kill {
		t.wake(t.machine.next())
		return
	}
	t.cgroup.kill()
	t.family.kill()
	now := clock.Boottime()
	if t.killing == 0 {
		t.killing = now
	}
	if !t.reported && now-t.killing > reportAfter {
		t.reported = true
		t.Log.Error("processes of the program survive SIGKILL; not releasing the office before they have ended",
			"processes", children("self"))
	}
	if t.family.reap() {
		notify(t.due) // Nothing is left.
		return
	}
	t.wake(now + killInterval)
}

// order sends an order to the guard. A guard that doesn't read it is killed: it has been stopped, or has ended.
func (t *tenure) order(o order) {
	line, err := json.Marshal(o)
	if err == nil {
		_ = t.orders.SetWriteDeadline(time.Now().Add(orderTimeout)) // Pipes have deadlines.
		_, err = t.orders.Write(append(line, '\n'))
	}
	if err != nil {
		t.machine.end(byItself)
		notify(t.due)
	}
}

// connections are those with the agent.
type connections struct {
	mu   sync.Mutex
	open map[*connection]bool
}

type connection struct {
	net.Conn

	all *connections
}

func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialed, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[*connection]bool{}
	}
	opened := &connection{dialed, c}
	c.open[opened] = true
	return opened, nil
}

func (c *connection) Close() error {
	c.all.mu.Lock()
	delete(c.all.open, c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}

func (c *connections) duplicates() (fds []uintptr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for opened := range c.open {
		socket, ok := opened.Conn.(syscall.Conn)
		if !ok {
			continue
		}
		raw, err := socket.SyscallConn()
		if err != nil {
			continue // It is closed.
		}
		_ = raw.Control(func(fd uintptr) { // as before
			if duplicate, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); err == nil {
				fds = append(fds, uintptr(duplicate))
			}
		})
	}
	return fds
}
