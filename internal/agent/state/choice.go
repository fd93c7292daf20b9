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
	// Save: it isn't what is kept, and must be before it is adopted.
	Save bool
	// Warning says why the list isn't the one that was wanted, or is "".
	Warning string
}

// ChooseList decides which list to run: kept is the one that was adopted last, nil if
// there is none, and wanted what the file says. reading is that of the agent's
// term clock now: nobody has exceeded it under a list that is long over, so it
// is the floor where the file gives none.
func ChooseList(kept *config.List, wanted config.List, mode office.Mode, reading election.Term) (Choice, error) {
	if kept == nil {
		return chooseFirst(wanted, mode, reading)
	}
	if wanted.Version < kept.Version {
		return Choice{List: *kept, Warning: fmt.Sprintf("version %d is older than %d, which this agent has adopted: "+
			"it stays with version %d; write that one, or version %d if the members change",
			wanted.Version, kept.Version, kept.Version, kept.Version+1)}, nil
	}
	if err := wanted.CheckFollows(*kept); err != nil {
		return Choice{}, err
	}
	next := wanted
	before := kept
	if wanted.Version == kept.Version {
		before = kept.Previous
		next.Floor = max(wanted.Floor, kept.Floor)
	}
	if next.Previous == nil && before != nil {
		next.Previous = &config.List{Version: before.Version, Members: before.Members}
	}
	return complete(next, kept, reading)
}

// first is the choice of an agent that has adopted nothing.
func chooseFirst(wanted config.List, mode office.Mode, reading election.Term) (Choice, error) {
	if wanted.Version > 1 && wanted.Previous == nil && mode != office.Available {
		return Choice{}, fmt.Errorf("version %d is the first that this agent sees, so it must be told the list before: "+
			"write version %d as previous", wanted.Version, wanted.Version-1)
	}
	return complete(wanted, nil, reading)
}

// settled fills in what follows from the rest of the list.
func complete(next config.List, kept *config.List, reading election.Term) (Choice, error) {
	if next.Previous == nil {
		if len(next.Departed) > 0 {
			return Choice{}, fmt.Errorf("%s can't have departed: no list before version %d is known", next.Departed[0], next.Version)
		}
		return Choice{List: next, Save: kept == nil || !equal(next, *kept)}, nil
	}
	for _, name := range next.Departed {
		if !next.Previous.Has(name) {
			return Choice{}, fmt.Errorf("%s can't have departed: it isn't a member of version %d", name, next.Previous.Version)
		}
	}
	previous := *next.Previous
	previous.Members = withCurrentAddresses(previous.Members, next.Members)
	next.Previous = &previous
	if next.Floor == 0 && previous.Version > 1 {
		next.Floor = reading
	}
	return Choice{List: next, Save: kept == nil || !equal(next, *kept)}, nil
}

// moved are members at the addresses that they have now.
func withCurrentAddresses(members, now []config.Member) []config.Member {
	address := make(map[string]string, len(now))
	for _, m := range now {
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
