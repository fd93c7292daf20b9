package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// journalsTimeout limits the time for all journals of a group.
const journalsTimeout = 10 * time.Second

// ReadJournals reads the journals of all agents of a group. It also returns which are missing,
// in the order of the members.
func ReadJournals(ctx context.Context, g *v1.ElectionGroup,
	forward clusteraccess.PortForwarder,
) ([]journal.Journal, []transcript.Missing) {
	ctx, cancel := context.WithTimeout(ctx, journalsTimeout)
	defer cancel()
	return gatherJournals(ctx, g.Name, memberPods(g), func(ctx context.Context, pod string) (*journal.Journal, error) {
		return readJournal(ctx, types.NamespacedName{Namespace: g.Namespace, Name: pod}, g.Name, forward)
	})
}

// memberPods returns the pods of a group.
func memberPods(g *v1.ElectionGroup) []string {
	var pods []string
	for i := range g.Status.Processes {
		pods = append(pods, g.Status.Processes[i].Pod)
	}
	slices.Sort(pods)
	return pods
}

func readJournal(ctx context.Context, pod types.NamespacedName, group string,
	forward clusteraccess.PortForwarder,
) (*journal.Journal, error) {
	if v1.IsWitness(pod.Name) {
		return nil, errors.New("it is a pod of the operator, which only votes")
	}
	port, err := forward(ctx, pod)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no answer within %s", journalsTimeout)
	case err != nil:
		return nil, clusteraccess.WithoutPrefix(err)
	}
	defer port.Close()
	return clusteraccess.ReadJournal(ctx, port, pod.Name, group)
}
