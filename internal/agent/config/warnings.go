package config

import (
	"fmt"

	"github.com/conclave-dev/conclave/internal/election/office"
)

// Warnings are one line each on what is allowed, but may not be meant.
func (c *Config) Warnings() []string {
	var warnings []string
	warn := func(group, key, format string, args ...any) {
		warnings = append(warnings, c.Position(group, key)+": "+fmt.Sprintf(format, args...))
	}
	if api, err := parseEndpoint(c.API); err == nil && c.ExposeAPI && !api.loopback() {
		warn("", "api", "everybody who reaches %s may have the coordinator step down", c.API)
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
			warn(g.Name, "members", "group %s has one member: nobody takes over from it", g.Name)
		case len(g.List.Members) == 2 && g.Safety.Mode != office.Available:
			warn(g.Name, "members", "group %s has two members: in %s mode both must be there, so neither can take over "+
				"from a dead one; add a third, which may have priority 0", g.Name, g.Safety.Mode)
		case candidates == 1:
			warn(g.Name, "members", "group %s has one member with a priority above 0: nobody takes over from it", g.Name)
		}
	}
	return warnings
}

// At says where a key of a group stands, or of the file itself if group is "".
func (c *Config) Position(group, key string) string {
	if line := c.lines[group].at(key); line > 0 {
		return fmt.Sprintf("%s:%d", c.file, line)
	}
	return c.file
}
