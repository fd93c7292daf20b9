package controllers_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
)

// BenchmarkStatusLag measures the time between five agents' reports of a new coordinator
// and the event of the new status at a watcher.
func BenchmarkStatusLag(b *testing.B) {
	e := newEnv(b)
	o := e.startOperator(func(o *operator) { o.debounce = -1 })
	// The operator limits the elections of one group.
	groups := []string{"ledger-0", "ledger-1", "ledger-2", "ledger-3"}
	var pods []string
	for i := range 5 {
		pods = append(pods, fmt.Sprintf("p-%d", i))
		e.pod(pods[i], groups...)
	}
	for _, group := range groups {
		e.createGroup(group, withService, pods...)
		e.awaitAdopted(group, 1, pods...)
	}
	watching := testclient.New(b, apiServer.Config(b))
	changes, err := watching.Watch(b.Context(), &v1.ElectionGroupList{}, client.InNamespace(e.namespace))
	must.Succeed(b, err)
	defer changes.Stop()
	var lags []time.Duration
	term := uint64(7)
	e.awaitQuiet(o)
	before := len(o.written())
	// At a higher rate, the operator would throttle the reports.
	limit := rate.NewLimiter(4, 1)
	for b.Loop() {
		must.Succeed(b, limit.Wait(b.Context()))
		term++
		began := time.Now()
		e.elect(groups[term%4], pods[term%5], term)
		for event := range changes.ResultChan() {
			if group, ok := event.Object.(*v1.ElectionGroup); ok && uint64(group.Status.Term) == term {
				break
			}
		}
		lags = append(lags, time.Since(began))
	}
	e.awaitQuiet(o)
	slices.Sort(lags)
	b.ReportMetric(float64(lags[len(lags)/2].Microseconds())/1000, "median-ms")
	b.ReportMetric(float64(lags[len(lags)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(len(o.written())-before)/float64(len(lags)), "writes/election")
}
