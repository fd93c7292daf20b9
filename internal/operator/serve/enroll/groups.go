package enroll

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// existingGroups reads the groups that exist and aren't being deleted.
func (s *Service) existingGroups(ctx context.Context, namespace string, names []string) ([]*v1.ElectionGroup, error) {
	var existing []*v1.ElectionGroup
	for _, name := range names {
		group := &v1.ElectionGroup{}
		err := s.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, group)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("group %s/%s: %w", namespace, name, err)
		case group.DeletionTimestamp.IsZero():
			existing = append(existing, group)
		}
	}
	return existing, nil
}

func groupNames(groups []*v1.ElectionGroup) []string {
	names := make([]string, len(groups))
	for i, group := range groups {
		names[i] = group.Name
	}
	return names
}
