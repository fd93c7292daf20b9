package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// witnessGroupsMax is how many groups of a namespace a witness reports on one connection, and witnessGroups how many it
// has at a time: see membership.MaxWitnessGroupsOfNamespace.
const witnessGroupsMax, witnessGroups = 1000, 100

// decoder turns the lines of one connection into reports, and passes those of certified groups on to the throttle.
type decoder struct {
	pod string
	// groups are those that the agent's certificate is for. A witness adds those that it reports, as many as it can have.
	groups   map[string]bool
	witness  bool
	throttle *throttle
	// event is the type of the event whose data follows.
	event string
}

// decode decodes a line of a stream of server-sent events. Agents send the data of
// an event in one line. Comments only show that the agent is alive.
func (d *decoder) decode(ctx context.Context, line []byte) error {
	field, value := splitField(line)
	switch field {
	case "event":
		d.event = string(value)
	case "data":
		event := d.event
		d.event = ""
		if err := d.decodeEvent(ctx, event, value); err != nil {
			return fmt.Errorf("invalid event %s: %w", event, err)
		}
	}
	return nil
}

func splitField(line []byte) (field string, value []byte) {
	for i, c := range line {
		if c == ':' {
			value = line[i+1:]
			if len(value) > 0 && value[0] == ' ' {
				value = value[1:]
			}
			return string(line[:i]), value
		}
	}
	return string(line), nil
}

func (d *decoder) decodeEvent(ctx context.Context, event string, data []byte) error {
	if err := control.CheckElements(data); err != nil {
		return err
	}
	switch event {
	case control.EventGroup:
		report := &control.Report{}
		if err := json.Unmarshal(data, report); err != nil {
			return err
		}
		if err := report.Check(); err != nil {
			return err
		}
		report.Problems = nil // The status doesn't have them: users read them from the agent.
		// The certificate names the pod; the report could name any.
		report.Pod = d.pod
		d.accept(report.Group, report)
	case control.EventLeft:
		var left control.Left
		if err := json.Unmarshal(data, &left); err != nil {
			return err
		}
		d.accept(left.Group, nil)
	case control.EventCurrent:
		var agent control.Agent
		if err := json.Unmarshal(data, &agent); err != nil {
			return err
		}
		if _, err := memberlist.ParseIdentity(agent.Identity); err != nil {
			return fmt.Errorf("identity: %w", err)
		}
		state := facts.Agent{Version: shortVersion(agent.Build), Identity: agent.Identity}
		return d.throttle.setCurrent(ctx, state, d.certified(agent.Groups))
	}
	return nil
}

func (d *decoder) accept(group string, report *control.Report) {
	if d.witness && len(d.groups) < witnessGroupsMax {
		d.groups[group] = true
	}
	if d.groups[group] {
		d.throttle.add(group, report)
	}
}

// shortVersion returns a version with at most as many characters as a status can have, and
// without characters that no version has.
func shortVersion(version string) string {
	const maxLength = 64
	isStrange := func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }
	if len(version) > maxLength || strings.ContainsFunc(version, isStrange) {
		return "invalid"
	}
	return version
}

// certified returns the groups that an agent can join, of those that its certificate
// is for, each once: the result is bounded however many groups the agent names.
func (d *decoder) certified(named []string) []string {
	var groups []string
	for _, group := range named {
		if d.groups[group] && !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
	}
	return groups
}
