package state

import (
	"fmt"
	"slices"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Choice is the list to run.
type Choice struct {
	List control.List
	// Save is true if the list differs from the stored one. It must be stored before it
	// is adopted.
	Save bool
	// Warning explains why List isn't the configured list. It is empty if it is.
	Warning string
}

// Known is what an agent knows about the lists and terms of a group.
type Known struct {
	// Stored is the list that the agent adopted last, nil if there is none.
	Stored *control.List
	// Clock is the highest term of the present epoch of the agent's term clock.
	Clock election.Term
	// Term is that of the running group, 0 if the agent isn't in the group.
	Term election.Term
	// FromOperator: the operator has computed the floor of the configured list, and knows
	// more about terms than this agent.
	FromOperator bool
}

// ChooseList decides which list to run. configured is the list in the file or document.
func ChooseList(known Known, configured control.List, mode office.Mode) (Choice, error) {
	stored := known.Stored
	if stored == nil {
		return chooseFirst(configured, mode, known.Clock)
	}
	if configured.Version < stored.Version {
		return Choice{List: *stored, Warning: fmt.Sprintf(
			"configured version %d is older than version %d, which this agent has adopted: "+
				"using version %d; update the configuration to version %d, or %d if the members change",
			configured.Version, stored.Version, stored.Version, stored.Version, stored.Version+1)}, nil
	}
	if err := config.CheckFollows(configured, *stored); err != nil {
		return Choice{}, err
	}
	if err := known.checkFloor(configured, mode); err != nil {
		return Choice{}, err
	}
	next := configured
	before := &control.PreviousList{Version: stored.Version, Members: stored.Members}
	if configured.Version == stored.Version {
		before = stored.Previous
		next.Floor = max(configured.Floor, stored.Floor)
	}
	if next.Previous == nil && before != nil {
		next.Previous = before
	}
	return complete(next, stored, known.Clock)
}

// maxFloorLead is how far ahead of the agent's clock a floor may be: a floor that is further
// ahead is an error, and the group could have no coordinator until clocks have passed it.
// The operator's floors are less far ahead.
const maxFloorLead = election.Epoch(48 * time.Hour / control.EpochDuration)

// checkFloor refuses a floor of configured that cannot be right. The floor must be at least
// what departed members may have granted, and they had adopted the stored list at the most.
func (k Known) checkFloor(configured control.List, mode office.Mode) error {
	if mode == office.Available || k.FromOperator {
		return nil // In Available mode, there are no grants.
	}
	if highest := k.Clock + maxFloorLead.First(); k.Term > 0 && election.Term(configured.Floor) > highest {
		return fmt.Errorf("floor must be at most %d, which is two days ahead of the clock of this agent, got %d: "+
			"use the number that conclave-agent floor prints", highest, configured.Floor)
	}
	alreadyDeparted := func(name string) bool {
		return configured.Version == k.Stored.Version && slices.Contains(k.Stored.Departed, name)
	}
	i := slices.IndexFunc(configured.Departed, func(name string) bool { return !alreadyDeparted(name) })
	if i < 0 {
		return nil
	}
	before := election.Term(k.Stored.Floor)
	least := max(k.Term, election.NextFloor(before, before.Epoch()-min(before.Epoch(), election.AcceptedSkew)))
	if election.Term(configured.Floor) >= least {
		return nil
	}
	return fmt.Errorf("floor must be at least %d, because %s has departed, got %d: stop the departed members, "+
		"and then use the number that conclave-agent floor prints", least, configured.Departed[i], configured.Floor)
}

func chooseFirst(configured control.List, mode office.Mode, now election.Term) (Choice, error) {
	if configured.Version > 1 && configured.Previous == nil && mode != office.Available {
		return Choice{},
			fmt.Errorf("previous must be the list of version %d, because version %d is the first one of this agent",
				configured.Version-1, configured.Version)
	}
	return complete(configured, nil, now)
}

// complete validates the departed members and fills in what follows from the rest of
// the list. No process has exceeded the reading of the agent's clock under a list before
// the previous one, so that is the floor if there is none.
func complete(next control.List, stored *control.List, now election.Term) (Choice, error) {
	if next.Previous == nil {
		if len(next.Departed) > 0 {
			return Choice{}, fmt.Errorf("departed must be empty, because the list before version %d is unknown, got %s",
				next.Version, next.Departed[0])
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
		next.Floor = uint64(now)
	}
	return Choice{List: next, Save: stored == nil || !equal(next, *stored)}, nil
}

// withCurrentAddresses returns members with the addresses and UIDs that they have in
// current.
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

func equal(a, b control.List) bool {
	if (a.Previous == nil) != (b.Previous == nil) {
		return false
	}
	if a.Previous != nil &&
		(a.Previous.Version != b.Previous.Version || !slices.Equal(a.Previous.Members, b.Previous.Members)) {
		return false
	}
	return a.Version == b.Version && a.Floor == b.Floor && slices.Equal(a.Members, b.Members) &&
		slices.Equal(a.Departed, b.Departed)
}
