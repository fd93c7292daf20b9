package lifecycle

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	rbacv1client "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/conclave-dev/conclave/hack/cluster/internal/program"
)

// api is a client of the API server.
type api struct {
	core *corev1client.CoreV1Client
	rbac *rbacv1client.RbacV1Client
}

func newAPI(kubeconfig string) (*api, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("cannot read the kubeconfig: %w", err)
	}
	config.Timeout, config.QPS = 10*time.Second, -1
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	rbac, err := rbacv1client.NewForConfig(config)
	return &api{core, rbac}, err
}

func (a *api) get(ctx context.Context, path string) error {
	return a.core.RESTClient().Get().AbsPath(path).Do(ctx).Error()
}

// ready returns nil if the API server is ready.
func (a *api) ready(ctx context.Context) error { return a.get(ctx, "/readyz") }

// reachesKubelet returns nil if the API server can send requests to the kubelet, as for kubectl logs and exec.
func (a *api) reachesKubelet(ctx context.Context, node string) error {
	return a.get(ctx, "/api/v1/nodes/"+node+"/proxy/healthz")
}

// nodeReady reports whether the node is Ready according to a heartbeat at that time or later. An older status may be that
// of a node that was killed since.
func (a *api) nodeReady(ctx context.Context, name string, since time.Time) (bool, error) {
	node, err := a.core.Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil // The node hasn't registered yet.
	}
	if err != nil {
		return false, err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			// Times in the API have a resolution of a second.
			return condition.Status == corev1.ConditionTrue && !condition.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)), nil
		}
	}
	return false, nil
}

// grantDNS grants the nodes' CoreDNS read access to the objects from which it answers.
func (a *api) grantDNS(ctx context.Context) error {
	named, verbs := metav1.ObjectMeta{Name: program.DNSUser}, []string{"list", "watch"}
	_, err := a.rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: named, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services", "pods", "namespaces"}, Verbs: verbs},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: verbs},
	}}, metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) {
		_, err = a.rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: named,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: program.DNSUser},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: program.DNSUser}},
		}, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("cannot grant CoreDNS read access: %w", err)
	}
	return nil
}
