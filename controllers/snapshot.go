package controllers

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
)

// snapshot has the facts that were gathered for one reconcile, and what becomes of it.
type snapshot struct {
	*facts.Facts

	state *groupState
	// wakeAt is when the next reconcile is due; zero if it isn't due unless something changes.
	wakeAt time.Time
	// holdErr is the error of the finalizers that must precede a document.
	holdErr error
}

func (s *snapshot) key() types.NamespacedName { return client.ObjectKeyFromObject(s.Group) }

func (s *snapshot) pod(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Group.Namespace, Name: name}
}

// wakeUp makes the next reconcile due at a time at the latest, unless that is zero.
func (s *snapshot) wakeUp(at time.Time) { s.wakeAt = facts.Earliest(s.wakeAt, at) }
