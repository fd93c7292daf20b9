package enroll

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
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

// maxDocuments bounds the bytes of documents in a response. A client that doesn't read it keeps it
// in memory, and there can be as many as connections.
const maxDocuments = 64 << 10

// documents returns the documents of the groups that have a member list, as far as there is room:
// the agent receives others from the mounted ConfigMap or from the operator. They are exact
// copies from the groups' ConfigMaps, because two documents of the same revision must
// not differ.
func (s *Service) documents(ctx context.Context, groups []*v1.ElectionGroup) ([]string, error) {
	var documents []string
	size := 0
	for _, group := range groups {
		document, err := s.document(ctx, group)
		if err != nil {
			return nil, fmt.Errorf("group %s/%s: %w", group.Namespace, group.Name, err)
		}
		if document != "" && size+len(document) <= maxDocuments {
			size += len(document)
			documents = append(documents, document)
		}
	}
	return documents, nil
}

// document returns a group's document. It is empty if there is none yet; the agent
// then receives it from the mounted ConfigMap or from the operator.
func (s *Service) document(ctx context.Context, group *v1.ElectionGroup) (string, error) {
	if group.Status.MemberList == nil {
		return "", nil
	}
	var published corev1.ConfigMap
	key := client.ObjectKey{Namespace: group.Namespace, Name: control.ConfigMapName(group.Name)}
	if err := s.Client.Get(ctx, key, &published); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	text := published.Data[control.DocumentKey]
	if document, err := membership.DecodeDocument(text); err != nil || document.UID != string(group.UID) {
		// The ConfigMap belongs to a former group of that name, or somebody edited it.
		// The operator will correct it.
		return "", nil //nolint:nilerr // the agent can enroll without a document
	}
	return text, nil
}
