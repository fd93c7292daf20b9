package v1

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/types"
)

// StopFinalizerPrefix is the prefix of the finalizers that retain the pods of groups in
// Strict mode until they are known to have stopped.
const StopFinalizerPrefix = "confirm-stopped.conclave.dev/"

// StopFinalizer returns the finalizer of a group.
func StopFinalizer(group string) string { return StopFinalizerPrefix + group }

// StopFinalizerPatch returns the strategic merge patch that adds the finalizer of a group
// to a pod, or removes it. Unlike a merge patch, it leaves the other finalizers of the pod
// unchanged. The UID makes it fail if another pod has the name by now.
func StopFinalizerPatch(pod types.UID, group string, add bool) ([]byte, error) {
	const list = "finalizers"
	key := "$deleteFromPrimitiveList/" + list
	if add {
		key = list
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod, key: []string{StopFinalizer(group)}}})
}
