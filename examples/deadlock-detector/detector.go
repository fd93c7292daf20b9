package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/conclave-dev/conclave/examples/internal/ledger"
	"github.com/conclave-dev/conclave/examples/internal/workload"
)

// edge says that one attempt waits until another one ends.
type edge struct {
	Waiter attempt `json:"waiter"`
	Holder attempt `json:"holder"`
}

// report is what a process knows: the attempt that waits at home, and the edges at its
// site.
type report struct {
	Waiting *attempt `json:"waiting"`
	Edges   []edge   `json:"edges"`
}

// graph is the global wait-for graph: for each attempt, the one that it waits for. There
// is one at most, because an attempt requests its locks one after the other.
type graph map[attempt]attempt

// newGraph combines reports. An edge counts if the waiter's home confirms that it waits:
// a site notices late that an attempt was aborted.
func newGraph(reports []report) graph {
	waiting := map[attempt]bool{}
	for _, r := range reports {
		if r.Waiting != nil {
			waiting[*r.Waiting] = true
		}
	}
	g := graph{}
	for _, r := range reports {
		for _, e := range r.Edges {
			if waiting[e.Waiter] {
				g[e.Waiter] = e.Holder
			}
		}
	}
	return g
}

// cycle returns the attempts of a cycle, the youngest one first, or nil. All coordinators
// choose the same victim: otherwise, two of them would abort two attempts.
func (g graph) cycle() []attempt {
	for start := range g {
		path := []attempt{start}
		for next, ok := g[start]; ok && len(path) <= len(g); next, ok = g[next] {
			if next == start {
				return youngestFirst(path)
			}
			path = append(path, next)
		}
	}
	return nil
}

func youngestFirst(cycle []attempt) []attempt {
	youngest := 0
	for i, a := range cycle {
		if a.Start > cycle[youngest].Start || a.Start == cycle[youngest].Start && a.Home > cycle[youngest].Home {
			youngest = i
		}
	}
	return append(cycle[youngest:len(cycle):len(cycle)], cycle[:youngest]...)
}

// both returns the edges that are in both graphs. An attempt requests the lock of a site
// once, so an edge that was there before and after a moment was there at that moment.
// If the first graph was complete before the second one was begun, all edges of the result
// existed at the moment in between. A cycle of them is therefore a deadlock, and no
// phantom of edges that existed at different times.
func both(first, second graph) graph {
	g := graph{}
	for waiter, holder := range first {
		if second[waiter] == holder {
			g[waiter] = holder
		}
	}
	return g
}

// detector is the side of a process that detects deadlocks, while it is coordinator.
type detector struct{ *workload.Process }

// surveyInterval is the time between two surveys.
const surveyInterval = 20 * time.Millisecond

func (d *detector) lead(ctx context.Context, token uint64) error {
	right := ledger.Entry{Resource: "verdicts", Token: token, By: d.Self}
	err := d.Ledger.Claim(ctx, &right)
	fmt.Printf("detects deadlocks from verdict %d, token %d\n", right.Seq+1, token)
	for err == nil && workload.Pause(ctx, surveyInterval) {
		g := d.survey(ctx)
		if g.cycle() == nil {
			continue
		}
		if cycle := both(g, d.survey(ctx)).cycle(); cycle != nil {
			right.Seq++
			right.Note = describe(cycle)
			err = d.resolve(ctx, right, verdict{cycle[0], token})
		}
	}
	return workload.Stopped(ctx, err)
}

// resolve aborts the victim. The ledger rejects the verdict of a former coordinator: since
// that one has seen the deadlock, its successor may have resolved it.
func (d *detector) resolve(ctx context.Context, right ledger.Entry, v verdict) error {
	if err := d.Ledger.Write(ctx, right); err != nil {
		return err
	}
	err := d.Call(ctx, v.Victim.Home, "/abort", v, nil)
	fmt.Printf("verdict %d: %s: %v\n", right.Seq, right.Note, err)
	return nil // If the victim didn't hear of it, the next survey finds the same cycle.
}

func describe(cycle []attempt) string {
	words := make([]string, 0, len(cycle)+1)
	for _, a := range append(cycle, cycle[0]) {
		words = append(words, a.String())
	}
	return "aborts the first of " + strings.Join(words, " waits for ")
}

// survey asks all processes. Without the report of a silent process, a deadlock may be
// missed, until that process responds.
func (d *detector) survey(ctx context.Context) graph {
	answers := make(chan report, len(d.Names))
	for _, name := range d.Names {
		go func() {
			var r report
			if d.Call(ctx, name, "/waits", struct{}{}, &r) != nil {
				r = report{}
			}
			answers <- r
		}()
	}
	reports := make([]report, 0, len(d.Names))
	for range d.Names {
		reports = append(reports, <-answers)
	}
	return newGraph(reports)
}
