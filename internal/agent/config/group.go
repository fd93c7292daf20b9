package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// The upper bounds. Longer times are most likely written in the wrong unit.
const (
	maxHeartbeatMillis = 60_000
	maxWaitMillis      = 600_000
	maxDrainMillis     = 3_600_000
	maxStableMillis    = 86_400_000
	maxFailures        = 1000
	maxMembers         = 100
	maxPorts           = 32
)

const defaultAlgorithm = "StatusTable"

// group checks a group and fills in the defaults. at is the path of the group.
func (c *checker) group(at string, from *control.Group) Group {
	application := at + ".application"
	g := Group{
		Name:      from.Name,
		Algorithm: choose(c, at+".algorithm", from.Algorithm, defaultAlgorithm, catalog.Names(), catalog.Names()),
		Preemption: Preemption{
			Policy: choose(c, at+".preemption.policy", from.Preemption.Policy, office.WhenStable,
				[]string{"Always", "WhenStable", "Never"}, []office.Policy{office.Always, office.WhenStable, office.NeverPreempt}),
			Stable: c.millis(at+".preemption.stableMillis", from.Preemption.StableMillis, 5*time.Second, 0, maxStableMillis),
		},
		Session: choose(c, application+".session", from.Application.Session, false,
			[]string{"Optional", "Required"}, []bool{false, true}),
		List: from.List,
	}
	c.text(at+".name", g.Name, CheckGroupName)
	if from.Application.Probe != nil {
		g.Probe = c.probe(application+".probe", from.Application.Probe)
	}
	if from.Service != nil {
		g.Service = c.service(at+".service", from.Service)
	}
	c.safety(at+".safety", &from.Safety, &g.Safety)
	c.timing(at+".timing", &from.Timing, &g.Timing)
	if !g.LeaseSuitsTiming() {
		beat := g.Timing.Heartbeat.Milliseconds()
		c.errorf(at+".safety.leaseMillis", "must be greater than two heartbeats (%d), got %d: use %d, for example",
			2*beat, g.Safety.Usual().Milliseconds(), 5*beat)
	}
	c.list(at, &g.List)
	return g
}

func (c *checker) safety(at string, from *control.Safety, s *Safety) {
	modes := []office.Mode{office.Available, office.Majority, office.Strict}
	names := []string{office.Available.String(), office.Majority.String(), office.Strict.String()}
	s.Mode = choose(c, at+".mode", from.Mode, office.Majority, names, modes)
	s.UsualLease = c.millis(at+".leaseMillis", given(from.LeaseMillis), control.DefaultLease, 1, maxWaitMillis)
	longest := control.LongestLease(s.UsualLease)
	s.Lease = c.millis(at+".longestLeaseMillis", given(from.LongestLeaseMillis), longest, 1, maxWaitMillis)
	if c.inFile && from.LongestLeaseMillis != 0 {
		c.errorf(at+".longestLeaseMillis", onlyOperator)
	} else if s.Lease < s.UsualLease {
		c.errorf(at+".longestLeaseMillis", "must be at least leaseMillis (%d), got %d",
			s.UsualLease.Milliseconds(), s.Lease.Milliseconds())
	}
}

const onlyOperator = "is known to an operator only: remove it"

// timing derives missing values from the heartbeat interval and checks that the values are consistent. The rules are
// those of office.Config, with the names of the fields.
func (c *checker) timing(at string, from *control.Timing, t *Timing) {
	beat := c.millis(at+".heartbeatMillis", given(from.HeartbeatMillis), 100*time.Millisecond, 1, maxHeartbeatMillis)
	stagger, reply := (beat / 2).Truncate(time.Millisecond), max(time.Millisecond, (beat/4).Truncate(time.Millisecond))
	*t = Timing{
		Heartbeat:        beat,
		SuspicionTimeout: c.millis(at+".suspicionTimeoutMillis", from.SuspicionTimeoutMillis, 4*beat, 1, maxWaitMillis),
		Stagger:          c.millis(at+".staggerMillis", from.StaggerMillis, stagger, 0, maxHeartbeatMillis),
		ReplyTimeout:     c.millis(at+".replyMillis", from.ReplyMillis, reply, 1, maxHeartbeatMillis),
		Measured:         from.ReplyMillis == nil,
		DrainTimeout:     c.millis(at+".drainMillis", from.DrainMillis, 5*time.Second, 0, maxDrainMillis),
	}
	if timeout := t.SuspicionTimeout.Milliseconds(); t.SuspicionTimeout <= beat {
		c.errorf(at+".suspicionTimeoutMillis", "must be greater than heartbeatMillis (%d), got %d: use %d, for example",
			beat.Milliseconds(), timeout, 4*beat.Milliseconds())
	} else if t.ReplyTimeout >= t.SuspicionTimeout {
		c.errorf(at+".replyMillis", "must be less than suspicionTimeoutMillis (%d), got %d",
			timeout, t.ReplyTimeout.Milliseconds())
	}
}

func (c *checker) probe(at string, from *control.Probe) *Probe {
	p := defaultProbe(from.URL)
	c.text(at+".url", from.URL, checkURL)
	p.Period = c.millis(at+".periodMillis", given(from.PeriodMillis), p.Period, 10, maxDrainMillis)
	p.Timeout = c.millis(at+".timeoutMillis", given(from.TimeoutMillis), p.Timeout, 1, maxHeartbeatMillis)
	if n := from.Failures; n < 0 || n > maxFailures {
		c.errorf(at+".failures", "must be an integer from 1 to %d, got %d", maxFailures, n)
	} else if n > 0 {
		p.Failures = int(n)
	}
	return p
}

func defaultProbe(url string) *Probe {
	return &Probe{URL: url, Period: time.Second, Timeout: time.Second, Failures: 3}
}

// NewProbe returns a probe of the application at a URL, with default timing.
func NewProbe(url string) (*Probe, error) {
	if err := checkURL(url); err != nil {
		return nil, err
	}
	return defaultProbe(url), nil
}

func (c *checker) service(at string, from *control.Service) *Service {
	if n := len(from.Ports); n == 0 || n > maxPorts {
		c.errorf(at+".ports", "must have from 1 to %d entries, got %d", maxPorts, n)
	}
	for i, p := range from.Ports {
		port := fmt.Sprintf("%s.ports[%d]", at, i)
		c.number(port+".port", uint64(p.Port), 1, math.MaxUint16)
		if err := checkListen(p.Listen); err != nil {
			c.errorf(port+".listen", "%s", err)
		}
	}
	return &Service{
		Ports: from.Ports, Wait: c.millis(at+".waitMillis", from.WaitMillis, 3*time.Second, 0, maxWaitMillis),
		Keep:          choose(c, at+".connections", from.Connections, false, []string{"Close", "Keep"}, []bool{false, true}),
		ProxyProtocol: choose(c, at+".proxyProtocol", from.ProxyProtocol, false, []string{"None", "V2"}, []bool{false, true}),
	}
}

// checkURL returns an error if text isn't a URL on a loopback address. A probe over the
// network would test the network more than the application.
func checkURL(text string) error {
	if err := checkLength(text); err != nil {
		return err
	}
	u, err := url.Parse(text)
	if err != nil {
		return errors.New("must be a URL such as http://127.0.0.1:8080/healthz")
	}
	host := endpoint{host: u.Hostname()}
	if u.Scheme != "http" || !host.loopback() || u.User != nil || u.Fragment != "" {
		return fmt.Errorf("must be an http URL on a loopback address such as http://127.0.0.1:8080/healthz, got %q",
			truncate(text, maxShown))
	}
	if u.Port() != "" {
		return checkAddress(u.Host)
	}
	return nil
}

// list checks the member list and the one before.
func (c *checker) list(at string, list *memberlist.List) {
	list.Version = cmp.Or(list.Version, 1)
	c.members(at+".members", list.Members)
	c.number(at+".version", uint64(list.Version), 1, uint64(election.MaxVersion))
	if previous := list.Previous; previous != nil {
		c.members(at+".previous.members", previous.Members)
		if previous.Previous != nil || len(previous.Departed) > 0 {
			c.errorf(at+".previous", "must have version and members only")
		}
		if list.Version > 1 {
			c.number(at+".previous.version", uint64(previous.Version), 1, uint64(list.Version-1))
		}
	}
	if list.Version > 1 {
		c.departed(at+".departed", list)
		return
	}
	const first = "cannot be used with version 1, the first one: remove it, or set version"
	if list.Previous != nil {
		c.errorf(at+".previous", first)
	}
	if len(list.Departed) > 0 {
		c.errorf(at+".departed", first)
	}
}

func (c *checker) members(at string, list []memberlist.Member) {
	if len(list) == 0 || len(list) > maxMembers {
		c.errorf(at, "must have from 1 to %d members, got %d", maxMembers, len(list))
		return
	}
	names, ranks := map[string]int{}, map[uint32]int{}
	highest := uint32(0)
	for i, m := range list {
		member := fmt.Sprintf("%s[%d]", at, i)
		c.text(member+".name", m.Name, CheckMemberName)
		c.number(member+".priority", uint64(m.Priority), 0, uint64(election.MaxPriority))
		if m.Address != "" || c.inFile {
			c.text(member+".address", m.Address, checkPeerAddress)
		}
		c.known(member+".uid", m.UID, CheckUID)
		c.known(member+".identity", m.Identity, func(identity string) error {
			_, err := memberlist.ParseIdentity(identity)
			return err
		})
		if first, ok := names[m.Name]; ok && m.Name != "" {
			c.errorf(member+".name", "%s is already the name of member [%d]", truncate(m.Name, maxShown), first)
		} else {
			names[m.Name] = i
		}
		if first, ok := ranks[m.Priority]; ok && m.Priority > 0 {
			c.errorf(member+".priority", "%d is already the priority of member [%d]: priorities above 0 must be unique; "+
				"a member with priority 0 is never elected", m.Priority, first)
		} else {
			ranks[m.Priority] = i
		}
		highest = max(highest, m.Priority)
	}
	if highest == 0 {
		c.errorf(at, "at least one member must have a priority above 0: members with priority 0 are never elected")
	}
}

// known checks what an operator knows of a member.
func (c *checker) known(field, value string, check func(string) error) {
	switch {
	case value == "":
	case c.inFile:
		c.errorf(field, onlyOperator)
	default:
		c.text(field, value, check)
	}
}

func (c *checker) departed(at string, list *memberlist.List) {
	if len(list.Departed) > maxMembers {
		c.errorf(at, "must have at most %d members, got %d", maxMembers, len(list.Departed))
		return
	}
	for i, name := range list.Departed {
		departed := fmt.Sprintf("%s[%d]", at, i)
		c.text(departed, name, CheckMemberName)
		switch {
		case slices.Contains(list.Departed[:i], name):
			c.errorf(departed, "%s is listed more than once", truncate(name, maxShown))
		case list.Previous != nil && !list.Previous.Has(name):
			c.errorf(departed, "must be a member of previous, got %q", truncate(name, maxShown))
		}
	}
}
