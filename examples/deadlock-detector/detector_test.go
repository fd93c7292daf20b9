package main

import (
	"fmt"
	"maps"
	"testing"
)

func at(start int64) attempt { return attempt{Start: start, Home: "a", Number: 1} }

// waits builds a graph: 1, 2 means that attempt 1 waits for attempt 2.
func waits(pairs ...int64) graph {
	g := graph{}
	for i := 0; i < len(pairs); i += 2 {
		g[at(pairs[i])] = at(pairs[i+1])
	}
	return g
}

func TestVictimIsYoungestOfCycle(t *testing.T) {
	for _, c := range []struct {
		graph graph
		want  []int64
	}{
		{waits(), nil},
		{waits(1, 2, 2, 3, 4, 3), nil},
		{waits(1, 2, 2, 1), []int64{2, 1}},
		{waits(1, 3, 3, 2, 2, 1), []int64{3, 2, 1}},
		{waits(9, 1, 1, 2, 2, 1, 3, 9), []int64{2, 1}}, // 9 and 3 wait for the cycle, and aren't part of it.
	} {
		var got []int64
		for _, a := range c.graph.cycle() {
			got = append(got, a.Start)
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%v: got %v, want %v", c.graph, got, c.want)
		}
	}
}

// TestPhantomIsNoDeadlock has the classical phantom: two surveys see edges of different
// times, and each survey by itself contains a cycle that never existed.
func TestPhantomIsNoDeadlock(t *testing.T) {
	first, second := waits(1, 2, 2, 1), waits(1, 2, 2, 3)
	if first.cycle() == nil {
		t.Fatal("the first survey must contain a cycle")
	}
	if got := both(first, second); got.cycle() != nil || !maps.Equal(got, waits(1, 2)) {
		t.Errorf("got %v, want only the edge that was there at the same time", got)
	}
	if deadlock := waits(1, 2, 2, 1, 3, 1); both(deadlock, deadlock).cycle() == nil {
		t.Error("a deadlock wasn't found")
	}
}

// TestAbortedAttemptDoesNotWait has a site that hasn't noticed yet that an attempt was
// aborted: only its home knows.
func TestAbortedAttemptDoesNotWait(t *testing.T) {
	one, two := at(1), at(2)
	reports := []report{
		{Waiting: &one, Edges: []edge{{one, two}}},
		{Edges: []edge{{two, one}}},
	}
	if got := newGraph(reports); got.cycle() != nil || len(got) != 1 {
		t.Errorf("got %v, want only the edge from 1 to 2", got)
	}
	reports[1].Waiting = &two
	if newGraph(reports).cycle() == nil {
		t.Error("a deadlock wasn't found")
	}
}
