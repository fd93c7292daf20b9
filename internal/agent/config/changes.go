package config

import (
	"fmt"
	"slices"

	"github.com/conclave-dev/conclave/internal/election/office"
)

// CheckReload returns Errors if an agent that runs can't go over from one
// configuration to the other. The lists in running are those in force, which
// the file may have been behind.
//
// Groups come and go, lists follow each other, and members move to other
// addresses. All else is agreed on by its members or bound when the agent starts.
func CheckReload(running, next *Config) error {
	p := &parser{file: next.file}
	fixed := func(what *Config) []any {
		return []any{what.Self, what.Domain, what.API, what.ExposeAPI, what.Listen, what.State, what.TLS}
	}
	was, is := fixed(running), fixed(next)
	for i, key := range []string{"self", "domain", "api", "exposeAPI", "listen", "state", "tls"} {
		if was[i] != is[i] {
			p.errorf(max(1, next.lines[""].at(key)), "%s can't change while the agent runs: restart the agent", key)
		}
	}
	for i := range next.Groups {
		g := &next.Groups[i]
		at := slices.IndexFunc(running.Groups, func(old Group) bool { return old.Name == g.Name })
		if at >= 0 {
			p.checkGroupReload(&running.Groups[at], g, next.lines[g.Name])
		}
	}
	return p.err()
}

func (p *parser) checkGroupReload(running, next *Group, at keyLines) {
	for _, key := range next.ChangedSettings(*running) {
		p.errorf(at.at(key), "%s of group %s can't change while the agent runs: restart the agent", key, next.Name)
	}
	if err := next.List.CheckFollows(running.List); err != nil {
		p.errorf(at.at("version"), "group %s: %s", next.Name, err)
	}
}

// ChangedSettings names the settings in which g isn't as before.
func (g Group) ChangedSettings(before Group) []string {
	probe := func(g Group) Probe {
		if g.Probe == nil {
			return Probe{}
		}
		return *g.Probe
	}
	var keys []string
	for _, setting := range []struct {
		key     string
		changed bool
	}{
		{"algorithm", before.Algorithm != g.Algorithm},
		{"safety", before.Safety != g.Safety},
		{"preemption", before.Preemption != g.Preemption},
		{"timing", before.Timing != g.Timing},
		{"application", before.Session != g.Session || probe(before) != probe(g)},
	} {
		if setting.changed {
			keys = append(keys, setting.key)
		}
	}
	return keys
}

// CheckSafetyChange says what keeps g from replacing before under the same UID. What
// a member has promised must mean the same to those that go by either.
func (g Group) CheckSafetyChange(before Group) error {
	switch was, is := before.Safety, g.Safety; {
	case is.Lease != was.Lease:
		return fmt.Errorf("leaseMillis can't change from %d to %d while the group runs: delete the group and make it anew",
			was.Lease.Milliseconds(), is.Lease.Milliseconds())
	case is.Mode != was.Mode && (is.Mode == office.Available || was.Mode == office.Available):
		return fmt.Errorf("mode can't change from %s to %s while the group runs: delete the group and make it anew",
			was.Mode, is.Mode)
	}
	return nil
}

// CheckFollows says what keeps l from being the list after before, or before itself
// with other addresses.
func (l List) CheckFollows(before List) error {
	named := l.Previous != nil
	switch {
	case l.Version < before.Version:
		return fmt.Errorf("version %d is older than %d, which is in force: write version %d, or %d if the members change",
			l.Version, before.Version, before.Version, before.Version+1)
	case l.Version == before.Version && !l.SameMembers(before):
		return fmt.Errorf("names, priorities or their order changed, but version is still %d: raise version to %d",
			l.Version, l.Version+1)
	case l.Version == before.Version && named && before.Previous != nil && !l.Previous.SameMembers(*before.Previous):
		return fmt.Errorf("previous isn't the list that version %d came after here: leave previous as it was, or out", l.Version)
	case l.Version-before.Version > 1 && !named:
		return fmt.Errorf("version jumps from %d to %d: write version %d, or the list of version %d as previous",
			before.Version, l.Version, before.Version+1, l.Version-1)
	case l.Version-before.Version == 1 && named && !l.Previous.SameMembers(before):
		return fmt.Errorf("previous isn't the list of version %d that is in force: write that one, or leave previous out",
			before.Version)
	}
	return nil
}

// SameMembers reports whether the lists have the same names with the same
// priorities in the same order. Where they are may differ.
func (l List) SameMembers(other List) bool {
	return slices.EqualFunc(l.Members, other.Members, func(a, b Member) bool {
		return a.Name == b.Name && a.Priority == b.Priority
	})
}
