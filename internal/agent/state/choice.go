package state

import (
	"fmt"
	"slices"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Choice is the list to run.
type Choice struct {
	List control.List
	// Save is true if the list differs from the stored one. It must be stored before it is adopted.
	Save bool
	// Warning explains why List isn't the configured list. It is empty if it is.
	Warning string
}

// ChooseList decides which list to run. stored is the list that the agent adopted last, nil if there is none, and
// configured is that in the file or document. An operator's list names the one before it, unless it is the first one.
func ChooseList(stored *control.List, configured control.List, mode office.Mode, fromOperator bool) (Choice, error) {
	next := configured
	switch {
	case stored == nil:
		if next.Version > 1 && next.Previous == nil && mode != office.Available && !fromOperator {
			return Choice{}, fmt.Errorf(
				"previous must be the list before version %d, because that is the first one of this agent", next.Version)
		}
	case configured.Version < stored.Version:
		return Choice{List: *stored, Warning: fmt.Sprintf(
			"configured version %d is older than version %d, which this agent has adopted: "+
				"using version %d; update the configuration to version %d, or %d if the members change",
			configured.Version, stored.Version, stored.Version, stored.Version, stored.Version+1)}, nil
	default:
		if err := config.CheckFollows(configured, *stored); err != nil {
			return Choice{}, err
		}
		if next.Previous == nil && configured.Version == stored.Version {
			next.Previous = stored.Previous
		} else if next.Previous == nil {
			next.Previous = &control.List{Version: stored.Version, Members: stored.Members}
		}
	}
	if previous := next.Previous; previous == nil && len(next.Departed) > 0 {
		return Choice{}, fmt.Errorf("departed must be empty, because the list before version %d is unknown, got %s",
			next.Version, next.Departed[0])
	} else if previous != nil {
		for _, name := range next.Departed {
			if !previous.Has(name) {
				return Choice{}, fmt.Errorf("departed must name members of version %d, got %s", previous.Version, name)
			}
		}
		next.Previous = &control.List{
			Version: previous.Version, Members: withCurrentAddresses(previous.Members, next.Members),
		}
	}
	return Choice{List: next, Save: !equal(&next, stored)}, nil
}

// withCurrentAddresses returns members with the addresses and UIDs that they have in current.
func withCurrentAddresses(members, current []control.Member) []control.Member {
	byName := make(map[string]control.Member, len(current))
	for _, m := range current {
		byName[m.Name] = m
	}
	result := make([]control.Member, len(members))
	for i, m := range members {
		if now, ok := byName[m.Name]; ok {
			m.Address, m.UID = now.Address, now.UID
		}
		result[i] = m
	}
	return result
}

func equal(a, b *control.List) bool {
	return a == b || a != nil && b != nil && a.Version == b.Version && slices.Equal(a.Members, b.Members) &&
		slices.Equal(a.Departed, b.Departed) && equal(a.Previous, b.Previous)
}
