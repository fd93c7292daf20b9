package main

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// The webhook lists the groups of a namespace for each pod. A namespace can have thousands, whose
// status is large, and many pods are created at the same time.
const (
	maxGroupLists = 8
	groupsPerPage = 50
)

// groupReader reads the specs of groups from the API server.
type groupReader struct {
	live client.Reader
	// slots bounds the number of lists at the same time.
	slots chan struct{}
}

func newGroupReader(live client.Reader) *groupReader {
	return &groupReader{live: live, slots: make(chan struct{}, maxGroupLists)}
}

// groups returns the groups of a namespace, without their status.
func (r *groupReader) groups(ctx context.Context, namespace string) (all []v1.ElectionGroup, err error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for next := ""; ; {
		var page v1.ElectionGroupList
		if err := r.live.List(ctx, &page, client.InNamespace(namespace), client.Limit(groupsPerPage), client.Continue(next)); err != nil {
			return nil, err
		}
		for i := range page.Items {
			page.Items[i].Status, page.Items[i].ManagedFields = v1.ElectionGroupStatus{}, nil
		}
		all = append(all, page.Items...)
		if next = page.Continue; next == "" {
			return all, nil
		}
	}
}
