package config

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// The upper bounds of timeouts and intervals. Larger values are most likely written
// in the wrong unit.
const (
	maxHeartbeatMillis = 60_000
	maxWaitMillis      = 600_000
	maxDrainMillis     = 3_600_000
	maxStableMillis    = 86_400_000
	maxFailures        = 1000
)

const defaultAlgorithm = "StatusTable"

// readGroup reads one entry of groups.
func (p *parser) readGroup(c *Config, book *addressBook, n *yaml.Node) {
	g := Group{
		Algorithm:  defaultAlgorithm,
		Safety:     Safety{Mode: office.Majority, UsualLease: control.DefaultLease},
		Preemption: Preemption{Policy: office.WhenStable, Stable: 5 * time.Second},
		Timing:     Timing{Heartbeat: 100 * time.Millisecond, DrainTimeout: 5 * time.Second},
		List:       control.List{Version: 1},
	}
	var timing, safety keyLines
	var lines memberLines
	at := p.mapping("the group", n,
		field{key: "name", read: p.text(&g.Name, CheckGroupName), required: true},
		field{key: "algorithm", read: enum(p, &g.Algorithm, catalog.Names(), catalog.Names())},
		field{key: "safety", read: func(key string, n *yaml.Node) { safety = p.readSafety(&g.Safety, key, n) }},
		field{key: "preemption", read: func(key string, n *yaml.Node) { p.readPreemption(&g.Preemption, key, n) }},
		field{key: "timing", read: func(key string, n *yaml.Node) { timing = p.readTiming(&g.Timing, key, n) }},
		field{key: "application", read: func(key string, n *yaml.Node) { p.readApplication(&g, key, n) }},
		field{key: "version", read: func(key string, n *yaml.Node) {
			g.List.Version = 0 // remains 0 if the value is invalid
			number(p, &g.List.Version, 1, maxVersion)(key, n)
		}},
		field{key: "members", read: p.members(&g.List.Members, &lines.members), required: true},
		field{key: "previous", read: func(key string, n *yaml.Node) { p.readPrevious(&g, &lines, key, n) }},
		field{key: "departed", read: p.departed(&g.List.Departed, &lines.departed)},
		field{key: "floor", read: number(p, &g.List.Floor, 0, maxFloor)},
	)
	p.completeLease(&g, safety)
	p.completeTiming(&g, at, timing, safety)
	if n.Kind != yaml.MappingNode {
		return
	}
	p.checkLists(&g, at, &lines)
	book.add(&g, at, &lines)
	if first, ok := c.lines[g.Name]; ok && g.Name != "" {
		p.errorf(at.at("name"), "group %s is already defined in line %d: group names must be unique", g.Name, first.at("name"))
		return
	}
	c.lines[g.Name] = at
	c.Groups = append(c.Groups, g)
}

func (p *parser) readSafety(s *Safety, key string, n *yaml.Node) keyLines {
	modes := []office.Mode{office.Available, office.Majority, office.Strict}
	var names []string
	for _, mode := range modes {
		names = append(names, mode.String())
	}
	fields := []field{
		{key: "mode", read: enum(p, &s.Mode, names, modes)},
		{key: "leaseMillis", read: p.duration(&s.UsualLease, time.Millisecond, 1, maxWaitMillis)},
	}
	if p.fromOperator {
		fields = append(fields, field{key: "longestLeaseMillis", read: p.duration(&s.Lease, time.Millisecond, 1, maxWaitMillis)})
	}
	return p.mapping(key, n, fields...)
}

func (p *parser) readPreemption(pre *Preemption, key string, n *yaml.Node) {
	p.mapping(key, n,
		field{key: "policy", read: enum(p, &pre.Policy, []string{"Always", "WhenStable", "Never"},
			[]office.Policy{office.Always, office.WhenStable, office.NeverPreempt})},
		field{key: "stableMillis", read: p.duration(&pre.Stable, time.Millisecond, 0, maxStableMillis)},
	)
}

func (p *parser) readTiming(t *Timing, key string, n *yaml.Node) keyLines {
	return p.mapping(key, n,
		field{key: "heartbeatMillis", read: p.duration(&t.Heartbeat, time.Millisecond, 1, maxHeartbeatMillis)},
		field{key: "suspicionTimeoutMillis", read: p.duration(&t.SuspicionTimeout, time.Millisecond, 1, maxWaitMillis)},
		field{key: "staggerMillis", read: p.duration(&t.Stagger, time.Millisecond, 0, maxHeartbeatMillis)},
		field{key: "replyMillis", read: p.duration(&t.ReplyTimeout, time.Millisecond, 1, maxHeartbeatMillis)},
		field{key: "drainMillis", read: p.duration(&t.DrainTimeout, time.Millisecond, 0, maxDrainMillis)},
	)
}

// completeLease derives the longest lease. The operator of documents without it waits for the usual one only.
func (p *parser) completeLease(g *Group, safety keyLines) {
	s := &g.Safety
	switch {
	case !p.fromOperator:
		s.Lease = control.LongestLease(s.UsualLease)
		if g.PreviousLease > 0 {
			g.PreviousLease = control.LongestLease(g.PreviousLease)
		}
	case !safety.has("longestLeaseMillis"):
		s.Lease = s.UsualLease
	case s.Lease < s.UsualLease:
		p.errorf(safety.at("longestLeaseMillis"), "longestLeaseMillis (%d) must be at least leaseMillis (%d)",
			s.Lease.Milliseconds(), s.UsualLease.Milliseconds())
	}
}

// completeTiming derives missing values from the heartbeat interval and checks that the
// values are consistent. The rules are those of office.Config, with the names of the
// file's keys.
func (p *parser) completeTiming(g *Group, at, timing, safety keyLines) {
	t := &g.Timing
	beat := t.Heartbeat
	if !timing.has("suspicionTimeoutMillis") {
		t.SuspicionTimeout = 4 * beat
	}
	if !timing.has("staggerMillis") {
		t.Stagger = (beat / 2).Truncate(time.Millisecond)
	}
	if !timing.has("replyMillis") {
		t.Measured = true
		t.ReplyTimeout = max(time.Millisecond, (beat / 4).Truncate(time.Millisecond))
	}
	// A value that could not be read is 0, and its error is recorded.
	if t.SuspicionTimeout > 0 && t.SuspicionTimeout <= beat {
		p.errorf(timing.at("suspicionTimeoutMillis"), "suspicionTimeoutMillis (%d) must be greater than heartbeatMillis (%d): use %d, for example",
			t.SuspicionTimeout.Milliseconds(), beat.Milliseconds(), 4*beat.Milliseconds())
	} else if t.ReplyTimeout > 0 && t.SuspicionTimeout > 0 && t.ReplyTimeout >= t.SuspicionTimeout {
		p.errorf(timing.at("replyMillis"), "replyMillis (%d) must be less than suspicionTimeoutMillis (%d)",
			t.ReplyTimeout.Milliseconds(), t.SuspicionTimeout.Milliseconds())
	}
	if !g.LeaseSuitsTiming() {
		line := at.at("safety")
		switch {
		case safety.has("leaseMillis"):
			line = safety.at("leaseMillis")
		case timing.has("heartbeatMillis"):
			line = timing.at("heartbeatMillis")
		}
		p.errorf(line, "leaseMillis (%d) must be greater than two heartbeats (%d): use %d, for example",
			g.Safety.Usual().Milliseconds(), 2*beat.Milliseconds(), 5*beat.Milliseconds())
	}
}

func (p *parser) readApplication(g *Group, key string, n *yaml.Node) {
	p.mapping(key, n,
		field{key: "session", read: enum(p, &g.Session, []string{"Optional", "Required"}, []bool{false, true})},
		field{key: "probe", read: func(key string, n *yaml.Node) {
			g.Probe = defaultProbe("")
			p.mapping(key, n,
				field{key: "url", read: p.text(&g.Probe.URL, checkURL), required: true},
				field{key: "periodMillis", read: p.duration(&g.Probe.Period, time.Millisecond, 10, maxDrainMillis)},
				field{key: "timeoutMillis", read: p.duration(&g.Probe.Timeout, time.Millisecond, 1, maxHeartbeatMillis)},
				field{key: "failures", read: number(p, &g.Probe.Failures, 1, maxFailures)},
			)
		}},
	)
}

func defaultProbe(url string) *Probe {
	return &Probe{URL: url, Period: time.Second, Timeout: time.Second, Failures: 3}
}

// checkURL returns an error if text isn't a URL on a loopback address. A probe over the
// network would test the network more than the application.
func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return errors.New("must be a URL such as http://127.0.0.1:8080/healthz")
	}
	host := endpoint{host: u.Hostname()}
	if u.Scheme != "http" || !host.loopback() || u.User != nil || u.Fragment != "" {
		return fmt.Errorf("must be an http URL on a loopback address such as http://127.0.0.1:8080/healthz, got %q", truncate(text))
	}
	if u.Port() != "" {
		return checkAddress(u.Host)
	}
	return nil
}
