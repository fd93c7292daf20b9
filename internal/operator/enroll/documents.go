package enroll

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// documents are those of the groups that exist and have a list of members. They
// are what the groups' ConfigMaps have, to the letter: two documents of the same
// revision never differ.
func (s *Service) documents(ctx context.Context, namespace string, groups []string) ([]string, error) {
	var documents []string
	for _, group := range groups {
		document, err := s.document(ctx, client.ObjectKey{Namespace: namespace, Name: group})
		if err != nil {
			return nil, fmt.Errorf("group %s/%s: %w", namespace, group, err)
		}
		if document != "" {
			documents = append(documents, document)
		}
	}
	return documents, nil
}

// document is empty if there is none yet: it will be mounted, or pushed.
func (s *Service) document(ctx context.Context, name client.ObjectKey) (string, error) {
	var group v1.ElectionGroup
	if err := s.Client.Get(ctx, name, &group); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if group.Status.MemberList == nil || !group.DeletionTimestamp.IsZero() {
		return "", nil
	}
	var published corev1.ConfigMap
	key := client.ObjectKey{Namespace: name.Namespace, Name: control.ConfigMapName(name.Name)}
	if err := s.Client.Get(ctx, key, &published); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	text := published.Data[control.DocumentKey]
	var document control.Document
	if err := yaml.Unmarshal([]byte(text), &document); err != nil || document.UID != string(group.UID) {
		// What is left of an earlier group, or of somebody's hand: the operator puts
		// it right.
		return "", nil //nolint:nilerr // the agent can do without
	}
	return text, nil
}
