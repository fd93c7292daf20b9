package agentcluster

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/conclave-dev/conclave/internal/testing/replay"
	"github.com/conclave-dev/conclave/internal/testing/tracecheck"
)

func (o *Options) traces() string { return filepath.Join(o.Folder, "traces") }

func (t *Cluster) tracesOf(group string) ([]string, error) {
	if running := t.Running(); len(running) > 0 {
		return nil, fmt.Errorf("cannot check traces while agents are running: %v", running)
	}
	return filepath.Glob(filepath.Join(t.options.traces(), group+".*.jsonl"))
}

// CheckTraces repeats the recorded elections of a group, one trace for each run of an agent, and checks them against
// the model. It returns the numbers of steps and tenures. No agent may be running.
func (t *Cluster) CheckTraces(group string) (steps, tenures int, err error) {
	paths, err := t.tracesOf(group)
	if err == nil && len(paths) == 0 {
		err = errors.New("there are no traces")
	}
	if err == nil {
		_, err = replay.Check(paths...)
	}
	if err != nil {
		return 0, 0, err
	}
	return tracecheck.Files(paths...)
}

// checkModel checks the traces of all groups against the model.
func (t *Cluster) checkModel() (err error) {
	for _, group := range t.Groups() {
		paths, failed := t.tracesOf(group)
		if failed == nil {
			_, _, failed = tracecheck.Files(paths...)
		}
		err = errors.Join(err, failed)
	}
	return err
}
