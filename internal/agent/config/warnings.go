package config

import (
	"fmt"

	"github.com/conclave-dev/conclave/internal/election/office"
)

// Warnings returns a line for each setting that is valid but probably unintended.
func (c *Config) Warnings() []string {
	var warnings []string
	warn := func(group, key, format string, args ...any) {
		warnings = append(warnings, c.Position(group, key)+": "+fmt.Sprintf(format, args...))
	}
	if api, err := parseEndpoint(c.API); err == nil && c.ExposeAPI && !api.loopback() {
		warn("", "api", "every client that reaches %s can make the coordinator step down", c.API)
	}
	for i := range c.Groups {
		g := &c.Groups[i]
		candidates := 0
		for _, m := range g.List.Members {
			if m.Priority > 0 {
				candidates++
			}
		}
		switch {
		case len(g.List.Members) == 1:
			warn(g.Name, "members", "group %s has one member: if it fails, no other process takes over", g.Name)
		case len(g.List.Members) == 2 && g.Safety.Mode != office.Available:
			warn(g.Name, "members", "group %s has two members: %s mode needs a majority, which is both of them, so neither "+
				"can take over if the other one fails; add a third member, which may have priority 0", g.Name, g.Safety.Mode)
		case candidates == 1:
			warn(g.Name, "members", "group %s has one member with a priority above 0: if it fails, no other process takes over", g.Name)
		}
		if drain := g.Timing.DrainTimeout; g.Safety.Mode != office.Available && drain < g.Safety.Usual() {
			warn(g.Name, "timing", "drainMillis (%d) of group %s is shorter than leaseMillis (%d): a handover waits for an application for no longer than that, "+
				"so the agent promises it no more; increase drainMillis", drain.Milliseconds(), g.Name, g.Safety.Usual().Milliseconds())
		}
	}
	return warnings
}

// Position returns FILE:LINE of a key of a group, or of a key of the file itself if
// group is "".
func (c *Config) Position(group, key string) string {
	if line := c.lines[group].at(key); line > 0 {
		return fmt.Sprintf("%s:%d", c.file, line)
	}
	return c.file
}
