package main

import (
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/describe"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// place creates a group whose members, with the highest priority first, are on these nodes.
func (e *env) place(t *testing.T, group string, nodes ...string) {
	t.Helper()
	g := e.CreateGroup(t, group)
	for i, node := range nodes {
		row := &g.Status.Processes[i]
		row.Node, row.Zone = node, "zone-of-"+node
	}
	must.Succeed(t, e.Status().Update(t.Context(), g))
}

func TestNodesShowsWhatEachStops(t *testing.T) {
	e := newEnv(t)
	e.place(t, "ledger", "node-3", "node-3", "node-3")
	e.place(t, "mail", "node-3", "node-1", "node-1")
	e.place(t, "audit", "node-2", "node-3", "node-1")
	got := e.runCommand(t, "nodes")
	checkGolden(t, "nodes.txt", got.stdout)
	if got.status != 0 || got.stderr != "" {
		t.Errorf("got %+v, want exit status 0 and no note", got)
	}
	for _, output := range []string{"json", "yaml"} {
		var rows []describe.NodeRow
		must.Succeed(t, yaml.UnmarshalStrict([]byte(e.runCommand(t, "nodes", "-o", output).stdout), &rows))
		if len(rows) != 3 || rows[0].Node != "node-3" || len(rows[0].Coordinators) != 2 || rows[0].Stops[0] != "bank/ledger" {
			t.Errorf("-o %s: got %+v", output, rows)
		}
	}
}

func TestNodesWithoutMembersExplainsIt(t *testing.T) {
	e := newEnv(t)
	got := e.runCommand(t, "nodes")
	if want := "No member of a group is on a node: there are no groups in namespace bank; for those of all namespaces, use -A.\n"; got.status != 0 || got.stdout != "" || got.stderr != want {
		t.Errorf("without groups: got %+v, want %q", got, want)
	}
	if got := e.runCommand(t, "nodes", "-o", "json"); got.stdout != "[]\n" {
		t.Errorf("without groups: got %+v, want an empty list", got)
	}
	e.CreateGroup(t, "ledger")
	got = e.runCommand(t, "nodes")
	if want := "No member of a group is on a node, according to their statuses.\n"; got.status != 0 || got.stdout != "" || got.stderr != want {
		t.Errorf("without nodes: got %+v, want %q", got, want)
	}
}
