package main

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/serve/authority"
)

// mayCreateCA returns an error if groups have begun: then their agents trust a CA, whose Secret has been deleted. They
// would trust neither a new CA nor agents that do. The manager also reports it in the status of these groups, because
// without a CA, it reports nothing else.
func (m *manager) mayCreateCA(ctx context.Context) error {
	message := fmt.Sprintf(
		"Secret %s/%s does not exist, but agents trust its CA: restore it. Or, to create a new CA, run: "+
			"kubectl create secret generic %[2]s --namespace %[1]s, and restart the pods with agents when the manager is ready",
		m.namespace, authority.SecretName)
	refused := false
	err := m.groups.groups(ctx, metav1.NamespaceAll, func(page []v1.ElectionGroup) {
		for i := range page {
			if page[i].Status.Protocol.MemberList != nil {
				refused = true
				m.reportMissingCA(ctx, &page[i], message)
			}
		}
	})
	switch {
	case refused:
		return errors.New(message)
	case err != nil:
		return fmt.Errorf("cannot list groups: %w", err)
	}
	return nil
}

// reportMissingCA reports a missing CA in the status of a group. It does so once: another
// replica may still have the CA in memory, and reports the status of the group.
func (m *manager) reportMissingCA(ctx context.Context, group *v1.ElectionGroup, message string) {
	if m.reportedCA[group.UID] {
		return
	}
	meta.SetStatusCondition(&group.Status.Conditions, metav1.Condition{
		Type: string(v1.ConditionReady), Status: metav1.ConditionFalse, Reason: string(v1.ReasonCAMissing), Message: message,
		ObservedGeneration: group.Generation,
	})
	if err := m.live.Status().Update(ctx, group); err != nil {
		m.log.Warn("cannot report that the CA is missing", "namespace", group.Namespace, "group", group.Name, "error", err)
		return
	}
	if m.reportedCA == nil {
		m.reportedCA = map[types.UID]bool{}
	}
	m.reportedCA[group.UID] = true
}
