package config

import (
	"fmt"
	"slices"

	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// CheckReload returns Errors if a running agent cannot switch from one
// configuration file to the next. The member lists in running are those in force,
// which may be newer than those in the file that the agent started with.
//
// Groups may be added and removed, member lists may be succeeded by newer ones, members
// may change their addresses, and groups may change the settings that aren't
// FixedSettings. All other settings are bound when the agent starts.
func CheckReload(running, next *Config) error {
	p := &parser{file: next.file}
	fixed := func(c *Config) []any {
		return []any{c.Self, c.Domain, c.API, fmt.Sprint(c.APIUIDs), c.ExposeAPI, c.Listen, c.State, c.TLS}
	}
	was, is := fixed(running), fixed(next)
	for i, key := range []string{"self", "domain", "api", "apiUIDs", "exposeAPI", "listen", "state", "tls"} {
		if was[i] != is[i] {
			p.errorf(max(1, next.lines[""].at(key)), "%s cannot change while the agent runs: restart the agent", key)
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
	for _, key := range next.FixedSettings(*running) {
		p.errorf(at.at(key), "%s of group %s cannot change while the agent runs: restart the agent", key, next.Name)
	}
	if err := CheckFollows(next.List, running.List); err != nil {
		p.errorf(at.at("version"), "group %s: %s", next.Name, err)
	}
}

// ChangedSettings returns the keys of the settings that differ from those before.
// The member list isn't one of them.
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

// FixedSettings returns the keys of the settings that differ from those before, and that
// a running election can't change. In a file the safety mode is one of them: all members
// must have the same one, and nobody tells when they do.
func (g Group) FixedSettings(before Group) []string {
	return slices.DeleteFunc(g.ChangedSettings(before), func(key string) bool {
		return key == "preemption" || key == "timing" || key == "safety" && (g.Safety.Mode == before.Safety.Mode || g.canChangeMode(before))
	})
}

// canChangeMode reports whether the election can continue in the mode of g.
func (g Group) canChangeMode(before Group) bool {
	return g.UID != "" && g.Safety.Mode != office.Available && before.Safety.Mode != office.Available
}

// CheckSafetyChange returns an error if g cannot replace before under the same UID.
// Members switch to g at different times, so a grant must have the same meaning
// under both. In Available mode, there are no grants.
func (g Group) CheckSafetyChange(before Group) error {
	was, is := before.Safety.Mode, g.Safety.Mode
	if is != was && (is == office.Available || was == office.Available) {
		return fmt.Errorf("mode cannot change from %s to %s while the group exists: delete the group and create it again", was, is)
	}
	return nil
}

// CheckFollows returns an error if next is neither a successor of the list before nor
// the same list with other addresses.
func CheckFollows(next, before control.List) error {
	named := next.Previous != nil
	switch {
	case next.Version < before.Version:
		return fmt.Errorf("version must be %d, which is in force, or %d if the members change, got %d",
			before.Version, before.Version+1, next.Version)
	case next.Version == before.Version && !sameMembers(next.Members, before.Members):
		return fmt.Errorf("names, priorities or their order changed, but version is still %d: increase version to %d",
			next.Version, next.Version+1)
	case next.Version == before.Version && named && before.Previous != nil && !sameMembers(next.Previous.Members, before.Previous.Members):
		return fmt.Errorf("previous must be the list that version %d succeeded on this agent: restore previous, or remove it", next.Version)
	case next.Version-before.Version > 1 && !named:
		return fmt.Errorf("version must be %d, or previous must be the list of version %d, got version %d after %d",
			before.Version+1, next.Version-1, next.Version, before.Version)
	case next.Version-before.Version == 1 && named && !sameMembers(next.Previous.Members, before.Members):
		return fmt.Errorf("previous must be the list of version %d that is in force: correct previous, or remove it",
			before.Version)
	}
	return nil
}

// sameMembers reports whether the lists have the same names with the same
// priorities in the same order. The addresses may differ.
func sameMembers(list, other []control.Member) bool {
	return slices.EqualFunc(list, other, func(a, b control.Member) bool {
		return a.Name == b.Name && a.Priority == b.Priority
	})
}
