package evacuate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/describe"
)

// leaving follows the groups whose coordinators leave some nodes. It is a groupwatch.Handler.
type leaving struct {
	nodes map[string]bool
	// remaining has the last known pod of each coordinator that has not left, by group. A group counts until another
	// coordinator follows.
	remaining map[types.NamespacedName]string
	// found is the number of coordinators that were there at first.
	found int
	// done is called when all have left.
	done context.CancelFunc
}

func newLeaving(nodes []corev1.Node) *leaving {
	l := &leaving{nodes: map[string]bool{}, done: func() {}}
	for i := range nodes {
		l.nodes[nodes[i].Name] = true
	}
	return l
}

// Replace implements groupwatch.Handler.
func (l *leaving) Replace(groups []v1.ElectionGroup) {
	before := l.remaining
	l.remaining = map[types.NamespacedName]string{}
	for i := range groups {
		key := client.ObjectKeyFromObject(&groups[i])
		if pod, waits := before[key]; waits {
			l.remaining[key] = pod
		}
		l.update(&groups[i])
	}
	l.check()
}

// Set implements groupwatch.Handler.
func (l *leaving) Set(g *v1.ElectionGroup) {
	l.update(g)
	l.check()
}

// Delete implements groupwatch.Handler.
func (l *leaving) Delete(g *v1.ElectionGroup) {
	delete(l.remaining, client.ObjectKeyFromObject(g))
	l.check()
}

// Connected implements groupwatch.Handler.
func (*leaving) Connected() {}

// Failed implements groupwatch.Handler.
func (*leaving) Failed(err error) error { return clusteraccess.RequestError(err) }

func (l *leaving) update(g *v1.ElectionGroup) {
	c := g.Status.Coordinator
	if c == nil {
		return // Either it leaves, and another one follows, or none was there.
	}
	key := client.ObjectKeyFromObject(g)
	for i := range g.Status.Processes {
		if p := &g.Status.Processes[i]; p.Pod == c.Pod && l.nodes[p.Node] {
			l.remaining[key] = c.Pod
			return
		}
	}
	delete(l.remaining, key)
}

func (l *leaving) check() {
	if len(l.remaining) == 0 {
		l.done()
	}
}

// describe lists the groups whose coordinators remain.
func (l *leaving) describe() string {
	var all []string
	for _, key := range slices.SortedFunc(maps.Keys(l.remaining),
		func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }) {
		all = append(all, fmt.Sprintf("%s (%s)", key, l.remaining[key]))
	}
	return describe.JoinNames(all, "and")
}
