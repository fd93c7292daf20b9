package agent

import (
	"log/slog"

	"github.com/conclave-dev/conclave/internal/agent/memory"
)

// OpenMemory opens the memory of the agent that has locked a state directory. The agent works
// without one, too. An error means that an earlier memory can't be invalidated.
func OpenMemory(stateDir string, log *slog.Logger) (*memory.Dir, error) {
	d, without, err := memory.Open(stateDir)
	if without != nil {
		log.Warn("cannot remember grants: after a restart, this agent waits for the lease", "error", without)
	}
	return d, err
}
