package controllers_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// BenchmarkStatusFollows measures from when five agents say that there is a new
// coordinator until whoever watches the group sees it in the status.
func BenchmarkStatusFollows(b *testing.B) {
	s := newStage(b)
	a := s.operator(func(a *actor) { a.lull = -1 })
	var pods []string
	for i := range 5 {
		pods = append(pods, fmt.Sprintf("p-%d", i))
		s.pod(pods[i], "ledger")
	}
	s.declared("ledger", withService, pods...)
	s.awaitAdopted("ledger", 1, pods...)
	watching, err := client.NewWithWatch(apiServer.Config(b), client.Options{Scheme: s.scheme})
	if err != nil {
		b.Fatal(err)
	}
	changes, err := watching.Watch(b.Context(), &v1.ElectionGroupList{}, client.InNamespace(s.namespace))
	if err != nil {
		b.Fatal(err)
	}
	defer changes.Stop()
	var lags []time.Duration
	term := uint64(7)
	s.awaitQuiet(a)
	before := len(a.written())
	// An agent that has news more often than that, for long, isn't believed at once.
	pace := rate.NewLimiter(4, 1)
	for b.Loop() {
		if err := pace.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
		term++
		began := time.Now()
		s.elect("ledger", pods[term%5], term)
		for event := range changes.ResultChan() {
			if group, ok := event.Object.(*v1.ElectionGroup); ok && uint64(group.Status.Term) == term {
				break
			}
		}
		lags = append(lags, time.Since(began))
	}
	s.awaitQuiet(a)
	slices.Sort(lags)
	b.ReportMetric(float64(lags[len(lags)/2].Microseconds())/1000, "median-ms")
	b.ReportMetric(float64(lags[len(lags)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(len(a.written())-before)/float64(len(lags)), "writes/election")
}
