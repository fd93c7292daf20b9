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

// documents returns the documents of the groups that exist and have a member list.
// They are exact copies from the groups' ConfigMaps, because two documents of the same
// revision must not differ.
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

// document returns a group's document. It is empty if there is none yet; the agent
// then receives it from the mounted ConfigMap or from the operator.
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
		// The ConfigMap belongs to a former group of that name, or somebody edited it.
		// The operator will correct it.
		return "", nil //nolint:nilerr // the agent can enroll without a document
	}
	return text, nil
}
