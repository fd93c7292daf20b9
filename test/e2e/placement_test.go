package e2e

import (
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

var placedGroups = flag.Int("groups", 30, "number of groups whose coordinators are spread over zones")

// placedNamespaces is the number of namespaces of the groups. A pod is in the groups of its namespace, of which an
// agent takes part in at most 100.
const placedNamespaces = 3

// testPlacement spreads the coordinators of groups over zones, evacuates a zone, and lets them return. All groups
// prefer a pod of one node at first: the operator orders new pods by name.
func testPlacement(e env) {
	for i := range placedNamespaces {
		namespace := fmt.Sprint("conclave-placed-", i)
		e.kubectl("create", "namespace", namespace)
		e.t.Cleanup(func() { e.kubectl("delete", "namespace", namespace, "--wait=false") })
	}
	nodes := e.nodes()
	zones := map[string]string{}
	for i, node := range nodes {
		zones[node] = fmt.Sprint("zone-", i)
		e.kubectl("label", "node", node, "topology.kubernetes.io/zone="+zones[node])
		e.t.Cleanup(func() { e.kubectl("label", "node", node, "topology.kubernetes.io/zone-") })
	}
	file := filepath.Join(e.t.TempDir(), "placed.yaml")
	writeFile(e.t, file, placedManifest(*placedGroups))
	start := time.Now()
	e.kubectl("apply", "--server-side", "-f", file)

	// perZone returns the number of coordinators per zone, or nil unless each group has one that its list prefers.
	perZone := func() map[string]int {
		counts := map[string]int{}
		for _, g := range e.placed() {
			c := g.Status.Coordinator
			if c == nil || g.Status.Protocol.MemberList == nil || g.Status.Protocol.MemberList.State != v1.ListSettled {
				return nil
			}
			row := g.Status.Processes[slices.IndexFunc(g.Status.Processes, func(p v1.Process) bool { return p.Pod == c.Pod })]
			counts[row.Zone]++
		}
		return counts
	}
	spread := func() bool {
		counts := slices.Sorted(maps.Values(perZone()))
		return len(counts) == len(zones) && counts[len(counts)-1]-counts[0] <= 1
	}
	e.waitUntil(defaultTimeout+time.Minute, "each group has a coordinator", func() bool { return perZone() != nil })
	elected := time.Since(start)
	e.waitUntil(defaultTimeout+time.Minute, "the coordinators are spread over the zones", spread)
	e.t.Logf("%d groups: each had a coordinator after %s, and they were spread after %s: %v", *placedGroups, elected,
		time.Since(start), perZone())

	before := e.tenures()
	coordinators := fmt.Sprint(before.coordinators)
	zone := zones[nodes[0]]
	start = time.Now()
	e.t.Logf("%s", e.runPlugin("evacuate", "zone", zone, "--for", "1h"))
	expect.Equalf(e.t, perZone()[zone], 0, "coordinators in the evacuated zone")
	after := e.tenures()
	var gaps []time.Duration
	var last time.Time
	for name, term := range after.terms {
		switch changes := after.number[name] - before.number[name]; {
		case changes > 1:
			e.t.Errorf("the coordinator of %s has changed %d times in the evacuation, want at most once", name, changes)
		case term != before.terms[name] && after.gaps[name] > 0:
			gaps = append(gaps, after.gaps[name])
			if began := after.began[name]; began.After(last) {
				last = began
			}
		}
	}
	slices.Sort(gaps)
	if len(gaps) == 0 {
		e.t.Fatal("no coordinator has changed")
	}
	e.t.Logf("%d coordinators left within %s, according to agents; gaps: median %s, 99th percentile %s, maximum %s",
		len(gaps), last.Sub(start), gaps[len(gaps)/2], gaps[len(gaps)*99/100], gaps[len(gaps)-1])

	e.t.Logf("%s", e.runPlugin("evacuate", "zone", zone, "--end"))
	e.waitUntil(defaultTimeout, "the same coordinators lead as before",
		func() bool { return fmt.Sprint(e.tenures().coordinators) == coordinators })
}

// placed returns the groups of placedManifest.
func (e env) placed() []v1.ElectionGroup {
	e.t.Helper()
	var list v1.ElectionGroupList
	e.list("", map[string]string{"placed": "true"}, &list)
	return list.Items
}

// tenures has the present tenure of each group: its coordinator, term and number, and the time without a coordinator
// before it.
type tenures struct {
	coordinators map[string]string
	terms        map[string]int64
	number       map[string]int64
	gaps         map[string]time.Duration
	began        map[string]time.Time
}

func (e env) tenures() tenures {
	e.t.Helper()
	all := tenures{
		map[string]string{}, map[string]int64{}, map[string]int64{}, map[string]time.Duration{}, map[string]time.Time{},
	}
	for _, g := range e.placed() {
		if g.Status.Coordinator == nil {
			continue
		}
		t := &g.Status.History[0]
		all.coordinators[g.Name], all.terms[g.Name], all.number[g.Name] = t.Pod, t.Term, t.Number
		all.gaps[g.Name], _ = t.Gap()
		all.began[g.Name] = t.From.Time
	}
	return all
}

// placedManifest returns groups, and a DaemonSet for those of each namespace.
func placedManifest(groups int) string {
	var text strings.Builder
	for i := range groups {
		fmt.Fprintf(&text, `
apiVersion: conclave.dev/v1
kind: ElectionGroup
metadata: {name: placed-%03d, namespace: conclave-placed-%d, labels: {placed: "true"}}
spec:
  selector: {matchLabels: {app: placed}}
  priorityFrom: {annotation: conclave.dev/priority}
  preemption: {policy: Always, spread: Zone}
  safety: {leaseMillis: 2500} # Hundreds of groups share this machine.
  timing: {heartbeatMillis: 500}
---`, i, i%placedNamespaces)
	}
	for i := range placedNamespaces {
		fmt.Fprintf(&text, `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: placed, namespace: conclave-placed-%d}
spec:
  selector: {matchLabels: {app: placed}}
  template:
    metadata: {labels: {app: placed, conclave.dev/agent: enabled}}
    spec:
      automountServiceAccountToken: false
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: application
        image: conclave/pause:e2e
        resources: {requests: {cpu: 5m, memory: 16Mi}, limits: {memory: 32Mi}}
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
---`, i)
	}
	return text.String()
}
