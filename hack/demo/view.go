package main

import (
	"fmt"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	groupview "github.com/conclave-dev/conclave/internal/plugin/watch/view"
)

// view is what the live view shows at one moment: the view of kubectl conclave watch, with the locks and faults above it and
// the keys below.
type view struct {
	group    groupview.View
	shown    *v1.ElectionGroup // The state that group has.
	nodes    map[string]string // The node of each pod.
	isolated string            // The node that is isolated, or "".
	locks    locks
	fault    string // The last fault.
	failover string // What came of it.
	now      time.Time
}

// setGroup sets the present state of the group.
func (v *view) setGroup(g *v1.ElectionGroup) {
	if g != nil && g != v.shown {
		v.group.Set(g, time.Now())
		v.shown = g
	}
}

// lines renders the view.
func (v *view) lines() []string {
	fault := v.fault
	if fault == "" {
		fault = "none yet: press a, p or n"
	}
	lines := []string{"Locks        " + v.lockLine(), "Last fault   " + fault, "Failover     " + v.failover, "Node         " + v.node(), ""}
	lines = append(lines, v.group.Lines(v.now)...)
	node := "isolate its node"
	if v.isolated != "" {
		node = "restore " + v.isolated
	}
	return append(lines, "", "a kill the coordinator's agent   p delete its pod", "n "+node+"   q quit")
}

// node describes where the coordinator runs.
func (v *view) node() string {
	pod := coordinatorOf(v.shown).Pod
	switch {
	case pod == "":
		return "none: an election is running"
	case v.isolated != "" && v.nodes[pod] == v.isolated:
		return pod + " runs on " + v.isolated + ", which is isolated"
	}
	return pod + " runs on " + v.nodes[pod]
}

// stallMax is the time without a new lock after which the view mentions it.
const stallMax = 2 * time.Second

// lockLine describes the invariant of the lock service.
func (v *view) lockLine() string {
	since := func(at time.Time) time.Duration { return v.now.Sub(at).Round(time.Second) }
	switch {
	case v.locks.Violation != "":
		return v.locks.String()
	case v.locks.Granted == 0:
		return "none granted yet"
	case v.now.Sub(v.locks.read) > stallMax:
		return fmt.Sprintf("%s; no response of the ledger for %s", v.locks, since(v.locks.read))
	case v.now.Sub(v.locks.grown) > stallMax:
		return fmt.Sprintf("%s; no new one for %s", v.locks, since(v.locks.grown))
	}
	return v.locks.String()
}
