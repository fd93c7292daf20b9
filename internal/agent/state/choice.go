package state

import (
	"fmt"
	"slices"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// Choice is the list to run.
type Choice struct {
	List config.List
	// Save is true if the list differs from the stored one. It must be stored before it
	// is adopted.
	Save bool
	// Warning explains why List isn't the configured list. It is empty if it is.
	Warning string
}

// ChooseList decides which list to run. stored is the list that the agent adopted last,
// nil if there is none; configured is the list in the file or document. now is the
// reading of the agent's term clock: no process has exceeded it under a list before the
// previous one, so it is the floor if the configured list has none.
func ChooseList(stored *config.List, configured config.List, mode office.Mode, now election.Term) (Choice, error) {
	if stored == nil {
		return chooseFirst(configured, mode, now)
	}
	if configured.Version < stored.Version {
		return Choice{List: *stored, Warning: fmt.Sprintf("configured version %d is older than version %d, which this agent has adopted: "+
			"using version %d; update the configuration to version %d, or %d if the members change",
			configured.Version, stored.Version, stored.Version, stored.Version, stored.Version+1)}, nil
	}
	if err := configured.CheckFollows(*stored); err != nil {
		return Choice{}, err
	}
	next := configured
	before := stored
	if configured.Version == stored.Version {
		before = stored.Previous
		next.Floor = max(configured.Floor, stored.Floor)
	}
	if next.Previous == nil && before != nil {
		next.Previous = &config.List{Version: before.Version, Members: before.Members}
	}
	return complete(next, stored, now)
}

// chooseFirst chooses the list of an agent that has not adopted any list.
func chooseFirst(configured config.List, mode office.Mode, now election.Term) (Choice, error) {
	if configured.Version > 1 && configured.Previous == nil && mode != office.Available {
		return Choice{}, fmt.Errorf("previous must be the list of version %d, because version %d is the first one of this agent",
			configured.Version-1, configured.Version)
	}
	return complete(configured, nil, now)
}

// complete validates the departed members and fills in what follows from the rest of
// the list.
func complete(next config.List, stored *config.List, now election.Term) (Choice, error) {
	if next.Previous == nil {
		if len(next.Departed) > 0 {
			return Choice{}, fmt.Errorf("departed must be empty, because the list before version %d is unknown, got %s", next.Version, next.Departed[0])
		}
		return Choice{List: next, Save: stored == nil || !equal(next, *stored)}, nil
	}
	for _, name := range next.Departed {
		if !next.Previous.Has(name) {
			return Choice{}, fmt.Errorf("departed must name members of version %d, got %s", next.Previous.Version, name)
		}
	}
	previous := *next.Previous
	previous.Members = withCurrentAddresses(previous.Members, next.Members)
	next.Previous = &previous
	if next.Floor == 0 && previous.Version > 1 {
		next.Floor = now
	}
	return Choice{List: next, Save: stored == nil || !equal(next, *stored)}, nil
}

// withCurrentAddresses returns members with the addresses that they have in current.
func withCurrentAddresses(members, current []config.Member) []config.Member {
	address := make(map[string]string, len(current))
	for _, m := range current {
		address[m.Name] = m.Address
	}
	result := make([]config.Member, len(members))
	for i, m := range members {
		if to, ok := address[m.Name]; ok {
			m.Address = to
		}
		result[i] = m
	}
	return result
}

func equal(a, b config.List) bool {
	if (a.Previous == nil) != (b.Previous == nil) || a.Previous != nil && !equal(*a.Previous, *b.Previous) {
		return false
	}
	return a.Version == b.Version && a.Floor == b.Floor && slices.Equal(a.Members, b.Members) &&
		slices.Equal(a.Departed, b.Departed)
}
