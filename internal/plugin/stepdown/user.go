package stepdown

import (
	"context"
	"encoding/json"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
)

// nameUser names the user in the coordinator's pod, so that the operator can name them: the agent sees only a
// connection from its own machine. It isn't necessary for a step-down, and the user may lack the permission.
// The returned function takes the name back.
func nameUser(ctx context.Context, c client.Client, g *v1.ElectionGroup) func() {
	reviewing, cancel := context.WithTimeout(ctx, clusteraccess.ClusterTimeout)
	defer cancel()
	review := &authenticationv1.SelfSubjectReview{}
	user := ""
	if err := c.Create(reviewing, review); err == nil {
		user = review.Status.UserInfo.Username
	}
	before := g.Status.Coordinator
	annotate := func(ctx context.Context, value any) error {
		patch, err := json.Marshal(
			map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1.AnnotationStepDownBy: value}}})
		if err != nil {
			return err
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: before.Pod}}
		return c.Patch(ctx, pod, client.RawPatch(types.MergePatchType, patch))
	}
	if user == "" || annotate(reviewing, v1.FormatStepDownBy(g.Name, before.Term, user)) != nil {
		return func() {}
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clusteraccess.ClusterTimeout)
		defer cancel()
		_ = annotate(ctx, nil) // The next step-down overwrites it.
	}
}
