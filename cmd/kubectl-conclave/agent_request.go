package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/clusteraccess/portforward"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// portForwarder forwards a local port to the agent in a pod.
type portForwarder func(ctx context.Context, pod types.NamespacedName) (*portforward.Port, error)

// forwarder returns a portForwarder with the user's credentials.
func (c *clusterFlags) forwarder() (portForwarder, error) {
	config, err := c.restConfig()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, pod types.NamespacedName) (*portforward.Port, error) {
		return portforward.Start(ctx, config, pod)
	}, nil
}

// requestAgent sends a request to the agent in a pod, and returns its answer, of which it
// reads a limited number of bytes.
func requestAgent(request *http.Request, pod string, limit int64) (status int, answer []byte, err error) {
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

// responseError returns the error in the agent's JSON, or else the HTTP status.
func responseError(answer []byte, status int) error {
	var refusal control.ErrorResponse
	if json.Unmarshal(answer, &refusal) != nil || refusal.Error == "" {
		return fmt.Errorf("%d %s", status, http.StatusText(status))
	}
	return errors.New(refusal.Error)
}
