package agentcluster

import (
	"fmt"
	"path/filepath"

	"github.com/conclave-dev/conclave/internal/testing/replay"
)

func (o *Options) traces() string { return filepath.Join(o.Folder, "traces") }

// CheckTraces repeats the recorded elections of a group, one trace for each run of an agent. It returns the numbers of
// steps and tenures, and an error if a repeated step differs or violates an invariant. No agent may be running.
func (t *Cluster) CheckTraces(group string) (steps, tenures int, err error) {
	pattern := filepath.Join(t.options.traces(), group+".*.jsonl")
	paths, err := filepath.Glob(pattern)
	switch {
	case err != nil:
		return 0, 0, err
	case len(paths) == 0:
		return 0, 0, fmt.Errorf("there are no traces %s", pattern)
	case len(t.Running()) > 0:
		return 0, 0, fmt.Errorf("cannot check traces while agents are running: %v", t.Running())
	}
	return replay.Check(paths...)
}
