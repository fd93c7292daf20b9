package explain

import (
	"context"
	"fmt"

	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// journalReader reads the journal of a pod's agent. It takes a limited time and memory.
type journalReader func(ctx context.Context, pod string) (*journal.Journal, error)

// gatherJournals returns the journals about a group, and which are missing, both in the order of the
// pods. A journal counts only if the agent wrote it in its own name.
func gatherJournals(ctx context.Context, group string, pods []string,
	read journalReader,
) (found []journal.Journal, missing []transcript.Missing) {
	journals, failures := clusteraccess.FromAgents(pods, func(pod string) (*journal.Journal, error) {
		return readOne(ctx, group, pod, read)
	})
	for i, pod := range pods {
		if err := failures[i]; err != nil {
			missing = append(missing, transcript.Missing{Agent: pod, Reason: err.Error()})
			continue
		}
		found = append(found, *journals[i])
	}
	return found, missing
}

func readOne(ctx context.Context, group, pod string, read journalReader) (*journal.Journal, error) {
	j, err := read(ctx, pod)
	if err != nil {
		return nil, err
	}
	if j.Agent != pod || j.Group != group {
		return nil, fmt.Errorf("its journal is that of %.100q in group %.100q", j.Agent, j.Group)
	}
	return j, transcript.Check(j)
}
