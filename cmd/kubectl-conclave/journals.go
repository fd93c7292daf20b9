package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess/portforward"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/journal"
	"github.com/conclave-dev/conclave/internal/transcript"
	"github.com/conclave-dev/conclave/internal/transcript/gather"
)

const (
	// journalsTimeout limits the time for all journals of a group.
	journalsTimeout = 10 * time.Second
	// journalMax is more than the largest journal in bytes.
	journalMax = 2 << 20
)

// checkForwarding returns an error if the user may not forward ports to the pods of a namespace, and
// names what that is for. Without it, there would be an error for each pod.
func checkForwarding(ctx context.Context, c client.Client, namespace, purpose string) error {
	allowed, err := mayForwardPorts(ctx, c, namespace)
	if err != nil {
		return fmt.Errorf("cannot check the permission to create pods/portforward: %w", err)
	}
	if !allowed {
		return fmt.Errorf("%s requires the permission to create pods/portforward in namespace %s", purpose, namespace)
	}
	return nil
}

// mayForwardPorts reports whether the user may connect to the agents of a namespace.
func mayForwardPorts(ctx context.Context, c client.Client, namespace string) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: "pods", Subresource: "portforward"},
	}}
	if err := c.Create(ctx, review); err != nil {
		return false, requestError(err)
	}
	return review.Status.Allowed, nil
}

// readJournals reads the journals of all agents of a group. It also returns which are missing,
// in the order of the members.
func readJournals(ctx context.Context, g *v1.ElectionGroup, forward portForwarder) ([]journal.Journal, []transcript.Missing) {
	ctx, cancel := context.WithTimeout(ctx, journalsTimeout)
	defer cancel()
	return gather.Journals(ctx, g.Name, memberPods(g), func(ctx context.Context, pod string) (*journal.Journal, error) {
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

func readJournal(ctx context.Context, pod types.NamespacedName, group string, forward portForwarder) (*journal.Journal, error) {
	port, err := forward(ctx, pod)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no answer within %s", journalsTimeout)
	case err != nil:
		return nil, withoutPrefix(err)
	}
	defer port.Close()
	return journalAt(ctx, port, pod.Name, group)
}

// journalAt reads the journal of the agent in a pod, whose port is forwarded.
func journalAt(ctx context.Context, port *portforward.Port, pod, group string) (*journal.Journal, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, port.URL+control.GroupPath(group)+journal.Path, http.NoBody)
	if err != nil {
		return nil, err
	}
	status, answer, err := requestAgent(request, pod, journalMax)
	if err != nil {
		return nil, port.Annotate(err)
	}
	return parseJournal(status, answer)
}

// withoutPrefix returns the last part of the error of a forwarded port, such as: pods "ledger-1"
// not found. The name of the pod is known, and that a connection couldn't be upgraded says
// nothing.
func withoutPrefix(err error) error {
	const prefix = "unable to upgrade connection: "
	text := err.Error()
	if i := strings.LastIndex(text, prefix); i >= 0 {
		return errors.New(text[i+len(prefix):])
	}
	return err
}

func parseJournal(status int, answer []byte) (*journal.Journal, error) {
	if status != http.StatusOK {
		err := responseError(answer, status)
		if status == http.StatusNotFound && strings.HasPrefix(err.Error(), "path ") {
			return nil, errors.New("its agent is too old to keep a journal: create the pod again")
		}
		return nil, err
	}
	j := &journal.Journal{}
	if err := json.Unmarshal(answer, j); err != nil {
		return nil, fmt.Errorf("cannot parse its journal: %w", err)
	}
	return j, nil
}
