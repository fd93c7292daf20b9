package office

import (
	"cmp"
	"errors"

	"github.com/conclave-dev/conclave/internal/election"
)

// Settings is the part of a configuration that can change while the process runs.
//
// Processes switch to new settings at different times. No rule of safety depends on them being equal: each grant names
// its lease, which is the shorter one of the two processes (package grants), and each process suspects others after its
// own timeout. A member that grants for a longer lease must have stored that before: see Config.LongestEarlierLease.
type Settings struct {
	// Mode can change between Majority and Strict only.
	Mode                       Mode
	Lease, UsualLease          election.Tick
	Heartbeat                  election.Tick
	CalmPeriod                 election.Tick
	SuspicionTimeout, Stagger  election.Tick
	Policy                     Policy
	StablePeriod, DrainTimeout election.Tick
	LongTenure                 election.Tick
}

// Apply replaces the settings of a configuration.
func (c *Config) Apply(s Settings) {
	c.Mode, c.Lease, c.UsualLease = s.Mode, s.Lease, s.UsualLease
	c.Heartbeat, c.CalmPeriod = s.Heartbeat, s.CalmPeriod
	c.SuspicionTimeout, c.Stagger, c.Policy = s.SuspicionTimeout, s.Stagger, s.Policy
	c.StablePeriod, c.DrainTimeout, c.LongTenure = s.StablePeriod, s.DrainTimeout, s.LongTenure
}

// Reconfigure switches to other settings. Waits that have begun end as they would have, except that nothing is
// suspected sooner than a whole timeout from now. If Reconfigure returns an error, nothing has changed.
func (m *Machine) Reconfigure(s Settings, now election.Tick) error {
	next := m.cfg
	next.Apply(s)
	if err := next.Validate(); err != nil {
		return err
	}
	if (s.Mode == Available) != (m.cfg.Mode == Available) {
		return errors.New("the mode cannot change from or to Available while the process runs")
	}
	m.now = max(m.now, now)
	m.cfg = next
	m.ledger.SetLease(s.Lease)
	m.support.SetLease(s.Lease)
	m.pace = fullPace
	m.rewatch()
	if m.role == Holder {
		m.tenure.delays = m.cfg.newDelays(m.pace, m.now)
	}
	m.due = m.nextDeadline()
	return nil
}

// rewatch begins the suspicion timeouts again.
func (m *Machine) rewatch() {
	probeAt := m.probes.at
	m.updateWatch()
	m.probes.at = min(m.probes.at, probeAt)
}

// commonLease returns the lease of a grant: that of the request, or that of this process if
// it is shorter. A process that restarts waits for no longer lease than its own.
func (s *state) commonLease(requested election.Tick) election.Tick {
	if s.cfg.Mode == Available {
		return 0
	}
	return min(cmp.Or(requested, s.cfg.Lease), s.cfg.Lease)
}

// request is the request in the last BEATs.
type request struct {
	sent, lease election.Tick
	// granted is the shortest lease that a member granted for it.
	granted election.Tick
}

func (r *request) record(sent, granted election.Tick) {
	if sent == r.sent {
		r.granted = min(r.granted, granted)
	}
}

func (r *request) encode(b []byte, now election.Tick) []byte {
	b = election.AppendMoment(b, r.sent, now)
	b = election.AppendNumber(b, uint64(r.lease))
	return election.AppendNumber(b, uint64(r.granted))
}

// beatInterval returns the time until the next BEATs. While a member grants for a lease that is shorter than requested,
// and than the usual one, because it has other settings, the interval is shorter in proportion, down to an eighth.
func (m *Machine) beatInterval() election.Tick {
	interval, wanted := m.cfg.Heartbeat, min(m.request.lease, m.cfg.usualLease())
	if m.request.granted >= wanted {
		return interval
	}
	return max(pace(m.request.granted*election.Tick(fullPace)/wanted).of(interval), interval/8, 1)
}
