package supervise

import (
	"math"
	"syscall"
	"time"

	"github.com/conclave-dev/conclave/client"
)

const (
	// never is a time that doesn't come.
	never = time.Duration(math.MaxInt64)
	// stoppedStatus is the status of a process that was stopped, and never will act.
	stoppedStatus = 128 + int(syscall.SIGSTOP)
)

type kind int

const (
	// renewed: the agent has confirmed the tenure.
	renewed kind = iota
	// stopRequested: the agent hands the office over once the program has stopped.
	stopRequested
	// tenureEnded: another process may be coordinator now.
	tenureEnded
	// terminated: a signal demands the end of the wrapper.
	terminated
	// guardEnded: the guard has ended, or was stopped. It ends after the program.
	guardEnded
	// noneLeft: there is no descendant any more, so the guard has ended, too.
	noneLeft
	// timePassed: the time for which the machine waits has come.
	timePassed
)

// input is an input of the machine. now is a time of CLOCK_BOOTTIME, as all times.
type input struct {
	kind    kind
	now     time.Duration
	renewal client.Renewal
	signal  syscall.Signal
	status  int
}

type output struct {
	// signal, if it isn't 0, is for the program and its process group.
	signal syscall.Signal
	// kill: kill all descendants, and again until none is left.
	kill bool
	// done: nothing is left, and the tenure may be released.
	done bool
}

// machine decides when the program of one tenure is terminated and killed. It has no clock and starts nothing.
type machine struct {
	// Deadline is when everything is killed, and the guard does the same. SIGKILL precedes the end of the time that the
	// program has by its margin.
	client.Deadline

	// killing is set once everything must end, and gone once the guard has ended.
	killing, gone bool

	// ended is why the tenure ends, and status that of the program.
	ended  ending
	status int
}

type ending int

const (
	// byItself is also that of a program whose guard was killed or stopped.
	byItself ending = iota + 1
	// revoked: the office is handed over or lost.
	revoked
	// bySignal: the wrapper got a signal.
	bySignal
)

// newMachine returns a machine for a tenure that a first renewal has confirmed.
func newMachine(first client.Renewal) *machine {
	m := &machine{}
	m.Renew(first)
	return m
}

func (m *machine) step(in input) (out output) {
	switch in.kind {
	case renewed:
		m.Renew(in.renewal)
		if in.renewal.Stopping {
			out.signal = m.stop(m.Led(), revoked, syscall.SIGTERM)
		}
	case stopRequested:
		// The agent has asked after the last response by which this process leads.
		out.signal = m.stop(m.Led(), revoked, syscall.SIGTERM)
	case terminated:
		out.signal = m.stop(in.now, bySignal, in.signal)
	case tenureEnded:
		m.end(revoked)
	case guardEnded:
		m.guardEnded(in.status)
	case noneLeft:
		m.guardEnded(in.status)
		out.done = true
		return out
	case timePassed:
	}
	switch {
	case in.now >= m.At():
		m.end(revoked)
	case in.now >= m.termAt():
		out.signal = m.stop(in.now, revoked, syscall.SIGTERM)
	}
	out.kill = m.killing
	return out
}

// stop gives the program the drain timeout from a time on. It returns the signal for it: a program is asked once to
// stop, and gets each signal of a user.
func (m *machine) stop(from time.Duration, why ending, signal syscall.Signal) syscall.Signal {
	again := m.IsStopping()
	m.Stop(from)
	if m.ended == 0 || why == bySignal {
		m.ended = why
	}
	if again && why != bySignal {
		return 0
	}
	return signal
}

// guardEnded ends everything. The first status counts: a guard that was stopped is killed.
func (m *machine) guardEnded(status int) {
	if !m.gone {
		m.gone, m.status = true, status
	}
	m.end(byItself)
}

func (m *machine) end(why ending) {
	m.killing = true
	if m.ended == 0 {
		m.ended = why
	}
}

// termAt returns when the program is asked to stop because the agent hasn't renewed the tenure.
func (m *machine) termAt() time.Duration {
	if m.IsStopping() {
		return never
	}
	return m.At() - m.Margin()
}

func (m *machine) next() time.Duration { return min(m.At(), m.termAt()) }
