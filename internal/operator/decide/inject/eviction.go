package inject

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// evictableAnnotation names the volumes of a pod that the Cluster Autoscaler may delete. Without it,
// the autoscaler removes no node with a pod that has an emptyDir.
const evictableAnnotation = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"

// addEvictable adds the volumes of the agent to those that may be deleted: the agent doesn't need
// them after its pod has ended. Those of the pod's author still count.
func (p *patch) addEvictable(m *podMetadata, volumes []corev1.Volume) {
	p.extend(m, evictableAnnotation, func(before string) string {
		names := strings.FieldsFunc(before, func(r rune) bool { return r == ',' || r == ' ' })
		for i := range volumes {
			if volumes[i].EmptyDir != nil && !slices.Contains(names, volumes[i].Name) {
				names = append(names, volumes[i].Name)
			}
		}
		return strings.Join(names, ",")
	})
}
