package status

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/describe"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// connectionsTimeout limits the time for all agents of a group.
const connectionsTimeout = 5 * time.Second

// writeConnections writes what the agents of a group carry. Only they know it: a status that follows connections would
// cost the API server writes all the time.
func (o *options) writeConnections(ctx context.Context, w io.Writer, g *v1.ElectionGroup) error {
	if g.Spec.Service == nil || g.Spec.Service.Via != v1.ViaAgents {
		return nil
	}
	fmt.Fprintln(w)
	connected, err := o.cluster.Connect()
	if err != nil {
		return err
	}
	if err := clusteraccess.CheckForwarding(ctx, connected, g.Namespace, "reading them from agents"); err != nil {
		fmt.Fprintf(w, "Connections: not shown: %v\n", err)
		return nil
	}
	forward, err := o.cluster.Forwarder()
	if err == nil {
		describe.WriteConnections(w, Connections(ctx, g, forward))
	}
	return err
}

// Connections returns what the agents of a group carry, in the order of the process status table.
func Connections(ctx context.Context, g *v1.ElectionGroup, forward clusteraccess.PortForwarder) []describe.Connections {
	ctx, cancel := context.WithTimeout(ctx, connectionsTimeout)
	defer cancel()
	rows, pods := make([]describe.Connections, len(g.Status.Processes)), make([]string, len(g.Status.Processes))
	for i := range pods {
		pods[i] = g.Status.Processes[i].Pod
	}
	found, failures := clusteraccess.FromAgents(pods, func(pod string) (*control.Connections, error) {
		if v1.IsWitness(pod) {
			return nil, nil //nolint:nilnil // It is a pod of the operator, and carries none.
		}
		var status struct{ Connections *control.Connections }
		key := types.NamespacedName{Namespace: g.Namespace, Name: pod}
		err := clusteraccess.ReadStatus(ctx, forward, key, g.Name, &status)
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer within %s", connectionsTimeout)
		}
		return status.Connections, err
	})
	for i, pod := range pods {
		rows[i] = describe.Connections{Pod: pod, Connections: found[i]}
		if err := failures[i]; err != nil {
			rows[i].Missing = strings.TrimPrefix(err.Error(), pod+": ")
		} else if found[i] == nil {
			rows[i].Missing = "its agent carries none"
		}
	}
	return rows
}
