package state

import (
	"fmt"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// ChooseList decides which list to run. stored is the list that the agent adopted last, nil if there is none, and
// configured is that in the file or document. An operator's list names the one before it, unless it is the first one.
// A warning explains why the list isn't the configured one, and is empty if it is.
func ChooseList(stored *memberlist.List, configured memberlist.List, mode office.Mode, fromOperator bool) (
	next memberlist.List, warning string, err error,
) {
	next = configured
	switch {
	case stored == nil:
		if next.Version > 1 && next.Previous == nil && mode != office.Available && !fromOperator {
			return next, "", fmt.Errorf(
				"previous must be the list before version %d, because that is the first one of this agent", next.Version)
		}
	case configured.Version < stored.Version:
		return *stored, fmt.Sprintf("configured version %d is older than version %d, which this agent has adopted: "+
			"using version %d; update the configuration to version %d, or %d if the members change",
			configured.Version, stored.Version, stored.Version, stored.Version, stored.Version+1), nil
	default:
		if err := config.CheckFollows(configured, *stored); err != nil {
			return next, "", err
		}
		if next.Previous == nil && configured.Version == stored.Version {
			next.Previous = stored.Previous
		} else if next.Previous == nil {
			next.Previous = stored.Bare()
		}
	}
	for _, name := range next.Departed {
		if !next.Previous.Has(name) {
			return next, "", fmt.Errorf("departed must name members of the list before version %d, got %s", next.Version, name)
		}
	}
	return next, "", nil
}
