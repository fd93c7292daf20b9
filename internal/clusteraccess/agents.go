// Package clusteraccess reads what the plugin needs from a cluster: groups, operators and agents.
package clusteraccess

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/clusteraccess/portforward"
	"github.com/conclave-dev/conclave/internal/journal"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// PortForwarder forwards a local port to the agent in a pod.
type PortForwarder func(ctx context.Context, pod types.NamespacedName) (*portforward.Port, error)

// Forwarder returns a PortForwarder with the user's credentials.
func (c *Flags) Forwarder() (PortForwarder, error) {
	config, err := c.RestConfig()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, pod types.NamespacedName) (*portforward.Port, error) {
		return portforward.Start(ctx, config, pod)
	}, nil
}

// RequestAgent sends a request to the agent in a pod, and returns its answer, of which it
// reads a limited number of bytes.
func RequestAgent(request *http.Request, pod string, limit int64) (status int, answer []byte, err error) {
	// This transport ignores proxies from the environment: the forwarded port is local.
	direct := http.Client{Transport: &http.Transport{DialContext: new(net.Dialer).DialContext, DisableKeepAlives: true}}
	response, err := direct.Do(request)
	if err != nil {
		return 0, nil, fmt.Errorf("the agent in pod %s does not respond: %w", pod, errors.Unwrap(err)) // without the URL
	}
	defer response.Body.Close()
	if answer, err = io.ReadAll(io.LimitReader(response.Body, limit)); err != nil {
		return 0, nil, fmt.Errorf("cannot read the response of the agent in pod %s: %w", pod, err)
	}
	return response.StatusCode, answer, nil
}

// ResponseError returns the error in the agent's JSON, or else the HTTP status.
func ResponseError(answer []byte, status int) error {
	var refusal control.ErrorResponse
	if json.Unmarshal(answer, &refusal) != nil || refusal.Error == "" {
		return fmt.Errorf("%d %s", status, http.StatusText(status))
	}
	return errors.New(refusal.Error)
}

// journalMax is more than the largest journal in bytes.
const journalMax = 2 << 20

// CheckForwarding returns an error if the user may not forward ports to the pods of a namespace, and
// names what that is for. Without it, there would be an error for each pod.
func CheckForwarding(ctx context.Context, c client.Client, namespace, purpose string) error {
	allowed, err := MayForwardPorts(ctx, c, namespace)
	if err != nil {
		return fmt.Errorf("cannot check the permission to create pods/portforward: %w", err)
	}
	if !allowed {
		return fmt.Errorf("%s requires the permission to create pods/portforward in namespace %s", purpose, namespace)
	}
	return nil
}

// MayForwardPorts reports whether the user may connect to the agents of a namespace.
func MayForwardPorts(ctx context.Context, c client.Client, namespace string) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: "create", Resource: "pods", Subresource: "portforward",
		},
	}}
	if err := c.Create(ctx, review); err != nil {
		return false, RequestError(err)
	}
	return review.Status.Allowed, nil
}

// ReadJournal reads the journal of the agent in a pod, whose port is forwarded.
func ReadJournal(ctx context.Context, port *portforward.Port, pod, group string) (*journal.Journal, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		port.URL+control.GroupPath(group)+journal.Path, http.NoBody)
	if err != nil {
		return nil, err
	}
	status, answer, err := RequestAgent(request, pod, journalMax)
	if err != nil {
		return nil, port.Annotate(err)
	}
	return parseJournal(status, answer)
}

// parallelReads is the number of agents that are read at a time.
const parallelReads = 16

// FromAgents reads from the agents in pods. Results and errors are in the order of the pods.
func FromAgents[T any](pods []string, read func(pod string) (T, error)) ([]T, []error) {
	found, failures := make([]T, len(pods)), make([]error, len(pods))
	workqueue.ParallelizeUntil(context.Background(), parallelReads, len(pods), func(i int) {
		found[i], failures[i] = read(pods[i])
	})
	return found, failures
}

// statusMax is more than the largest status in bytes.
const statusMax = 4 << 20

// ReadStatus decodes the status of a group, as the agent in a pod knows it.
func ReadStatus(ctx context.Context, forward PortForwarder, pod types.NamespacedName, group string, into any) error {
	port, err := forward(ctx, pod)
	if err != nil {
		return fmt.Errorf("%s: %w", pod.Name, WithoutPrefix(err))
	}
	defer port.Close()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		port.URL+control.GroupPath(group)+"/status", http.NoBody)
	if err != nil {
		return err
	}
	status, answer, err := RequestAgent(request, pod.Name, statusMax)
	if err != nil {
		return port.Annotate(err)
	}
	if status != http.StatusOK {
		return fmt.Errorf("%s: %w", pod.Name, ResponseError(answer, status))
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("cannot parse the status of %s: %w", pod.Name, err)
	}
	return nil
}

// WithoutPrefix returns the last part of the error of a forwarded port, such as: pods "ledger-1" not found. The name of
// the pod is known, and that a connection couldn't be upgraded says nothing.
func WithoutPrefix(err error) error {
	const prefix = "unable to upgrade connection: "
	text := err.Error()
	if i := strings.LastIndex(text, prefix); i >= 0 {
		return errors.New(text[i+len(prefix):])
	}
	return err
}

func parseJournal(status int, answer []byte) (*journal.Journal, error) {
	if status != http.StatusOK {
		return nil, ResponseError(answer, status)
	}
	j := &journal.Journal{}
	if err := json.Unmarshal(answer, j); err != nil {
		return nil, fmt.Errorf("cannot parse its journal: %w", err)
	}
	return j, nil
}
