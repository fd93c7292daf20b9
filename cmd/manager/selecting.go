package main

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/net/fair"
)

// The webhook lists the groups of a namespace for each pod that no group in the cache selects. A namespace can have
// thousands, of more than a megabyte each, and many pods are created at the same time. So a list has only one page in
// memory, and the pods of one namespace get a part of the lists only: the API server waits for a webhook for five
// seconds.
const (
	maxGroupLists             = 8
	maxGroupListsPerNamespace = maxGroupLists / 2
	groupsPerPage             = 10
)

// groupReader reads groups from the API server.
type groupReader struct {
	live client.Reader
	// lists bounds the number of lists at the same time, for each namespace.
	lists *fair.Semaphore[string]
}

func newGroupReader(live client.Reader) *groupReader {
	return &groupReader{live: live, lists: fair.NewSemaphore[string](maxGroupLists, maxGroupListsPerNamespace)}
}

// groups passes on the groups of a namespace, or of all, in pages.
func (r *groupReader) groups(ctx context.Context, namespace string, use func([]v1.ElectionGroup)) error {
	release, err := r.lists.Acquire(ctx, namespace)
	if err != nil {
		return err
	}
	defer release()
	for next := ""; ; {
		var page v1.ElectionGroupList
		if err := r.live.List(ctx, &page, client.InNamespace(namespace), client.Limit(groupsPerPage),
			client.Continue(next)); err != nil {
			return err
		}
		use(page.Items)
		if next = page.Continue; next == "" {
			return nil
		}
	}
}

// specs passes on the groups of a namespace without their status: a pod that is created takes
// part in the groups whose spec selects it.
func (r *groupReader) specs(ctx context.Context, namespace string, use func([]v1.ElectionGroup)) error {
	return r.groups(ctx, namespace, func(page []v1.ElectionGroup) {
		for i := range page {
			page[i].Status = v1.ElectionGroupStatus{}
		}
		use(page)
	})
}

// cachedSpecs returns a function that does the same with the groups in the cache.
func cachedSpecs(cached client.Reader) func(context.Context, string, func([]v1.ElectionGroup)) error {
	return func(ctx context.Context, namespace string, use func([]v1.ElectionGroup)) error {
		var all v1.ElectionGroupList
		if err := cached.List(ctx, &all, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
		for i := range all.Items {
			use([]v1.ElectionGroup{{ObjectMeta: all.Items[i].ObjectMeta, Spec: all.Items[i].Spec}})
		}
		return nil
	}
}
