package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// CheckReload returns Errors if a running agent cannot switch from one configuration file to the next. The member lists
// in running are those in force, which may be newer than those in the file that the agent started with.
//
// Groups may be added and removed, member lists may be succeeded by newer ones, members may change their addresses, and
// groups may change the settings that aren't FixedSettings. All other settings are bound when the agent starts.
func CheckReload(running, next *Config) error {
	c := &checker{source: next.file}
	const restart = "cannot change while the agent runs: restart the agent"
	was, is := reflect.ValueOf(*running), reflect.ValueOf(*next)
	for i := range was.NumField() {
		key, _, _ := strings.Cut(was.Type().Field(i).Tag.Get("json"), ",")
		if key != "" && key != "-" && !reflect.DeepEqual(was.Field(i).Interface(), is.Field(i).Interface()) {
			c.errorf(key, restart)
		}
	}
	for i := range next.Groups {
		g := &next.Groups[i]
		at := slices.IndexFunc(running.Groups, func(old Group) bool { return old.Name == g.Name })
		if at < 0 {
			continue
		}
		for _, key := range g.FixedSettings(running.Groups[at]) {
			c.errorf(fmt.Sprintf("groups[%d].%s", i, key), restart)
		}
		if err := CheckFollows(g.List, running.Groups[at].List); err != nil {
			c.errorf(fmt.Sprintf("groups[%d].version", i), "%s", err)
		}
	}
	return c.err()
}

// ChangedSettings returns the keys of the settings that differ from those before. The member list isn't one of them.
func (g Group) ChangedSettings(before Group) []string {
	var keys []string
	for _, setting := range []struct {
		key     string
		changed bool
	}{
		{"algorithm", before.Algorithm != g.Algorithm},
		{"safety", before.Safety != g.Safety},
		{"preemption", before.Preemption != g.Preemption},
		{"timing", before.Timing != g.Timing},
		{"application", before.Session != g.Session || !reflect.DeepEqual(before.Probe, g.Probe)},
		{"service", !reflect.DeepEqual(before.Service, g.Service)},
	} {
		if setting.changed {
			keys = append(keys, setting.key)
		}
	}
	return keys
}

// FixedSettings returns the keys of the settings that differ from those before, and that a running election can't
// change. In a file the safety mode is one of them: all members must have the same one, and nobody tells when they do.
func (g Group) FixedSettings(before Group) []string {
	return slices.DeleteFunc(g.ChangedSettings(before), func(key string) bool {
		return key == "preemption" || key == "timing" || key == "service" ||
			key == "safety" && (g.Safety.Mode == before.Safety.Mode || g.UID != "" && g.CheckSafetyChange(before) == nil)
	})
}

// CheckSafetyChange returns an error if g cannot replace before under the same UID. Members switch to g at different
// times, so a grant must have the same meaning under both. In Available mode, there are no grants.
func (g Group) CheckSafetyChange(before Group) error {
	was, is := before.Safety.Mode, g.Safety.Mode
	if is != was && (is == office.Available || was == office.Available) {
		return fmt.Errorf("mode cannot change from %s to %s while the group exists: delete the group and create it again",
			was, is)
	}
	return nil
}

// CheckFollows returns an error if next is neither a successor of the list before nor
// the same list with other addresses.
func CheckFollows(next, before memberlist.List) error {
	named := next.Previous != nil
	switch {
	case next.Version < before.Version:
		return fmt.Errorf("version must be %d, which is in force, or %d if the members change, got %d",
			before.Version, before.Version+1, next.Version)
	case next.Version == before.Version && !sameMembers(next.Members, before.Members):
		return fmt.Errorf("names, priorities or their order changed, but version is still %d: increase version to %d",
			next.Version, next.Version+1)
	case next.Version == before.Version && !keepsIdentities(next.Members, before.Members):
		return fmt.Errorf("identities changed, but version is still %d", next.Version)
	case next.Version == before.Version && named && before.Previous != nil &&
		!sameMembers(next.Previous.Members, before.Previous.Members):
		return fmt.Errorf("previous must be the list that version %d succeeded on this agent: restore previous, or remove it",
			next.Version)
	case next.Version == before.Version:
		return nil
	case !named && next.Version-before.Version > 1:
		return fmt.Errorf("version must be %d, or previous must be the list before version %d, got version %d after %d",
			before.Version+1, next.Version, next.Version, before.Version)
	case named && next.Previous.Version <= before.Version && !sameMembers(next.Previous.Members, before.Members):
		// An operator whose objects were restored from a backup may continue with an older list of the same members.
		return fmt.Errorf("previous must be the list of version %d that is in force: correct previous, or remove it",
			before.Version)
	}
	return nil
}

// sameMembers reports whether the lists have the same names with the same
// priorities in the same order. The addresses may differ.
func sameMembers(list, other []memberlist.Member) bool {
	return slices.EqualFunc(list, other, func(a, b memberlist.Member) bool {
		return a.Name == b.Name && a.Priority == b.Priority
	})
}

// keepsIdentities reports whether no identity of a list has changed. One that was unknown before may be known now.
func keepsIdentities(list, before []memberlist.Member) bool {
	return slices.EqualFunc(list, before, func(now, was memberlist.Member) bool {
		return was.Identity == "" || was.Identity == now.Identity
	})
}

// Warnings returns a line for each setting that is valid but probably unintended.
func (c *Config) Warnings() []string {
	found := &checker{source: c.file}
	if api, err := parseEndpoint(c.API); err == nil && c.ExposeAPI && !api.loopback() {
		found.errorf("api", "every client that reaches %s can make the coordinator step down", c.API)
	}
	for i := range c.Groups {
		g, at := &c.Groups[i], fmt.Sprintf("groups[%d]", i)
		candidates := 0
		for _, m := range g.List.Members {
			if m.Priority > 0 {
				candidates++
			}
		}
		switch {
		case len(g.List.Members) == 1:
			found.errorf(at+".members", "there is one member: if it fails, no other process takes over")
		case len(g.List.Members) == 2 && g.Safety.Mode != office.Available:
			found.errorf(at+".members", "there are two members: %s mode needs a majority, which is both of them, so neither "+
				"can take over if the other one fails; add a third member, which may have priority 0", g.Safety.Mode)
		case candidates == 1:
			found.errorf(at+".members", "one member has a priority above 0: if it fails, no other process takes over")
		}
		if drain := g.Timing.DrainTimeout; g.Safety.Mode != office.Available && drain < g.Safety.Usual() {
			found.errorf(at+".timing.drainMillis", "%d is shorter than leaseMillis (%d): a handover waits for an application "+
				"for no longer than that, so the agent promises it no more; increase drainMillis",
				drain.Milliseconds(), g.Safety.Usual().Milliseconds())
		}
	}
	return found.errors
}

// InGroup says in which group of the file an error is.
func (c *Config) InGroup(name string, err error) error {
	i := slices.IndexFunc(c.Groups, func(g Group) bool { return g.Name == name })
	return fmt.Errorf("%s: groups[%d]: %w", c.file, i, err)
}
