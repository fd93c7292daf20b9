package controllers_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestPodsOfANamespaceDelayOnlyTheirOwn: many pods of a namespace name groups that don't exist,
// and the API server takes its time to say so. The record of a pod in another namespace doesn't
// wait for all of them.
func TestPodsOfANamespaceDelayOnlyTheirOwn(t *testing.T) {
	const pods = 100
	greedy, e := newEnv(t), newEnv(t)
	var read atomic.Int32
	created := make(chan struct{})
	e.startOperator(func(o *operator) {
		o.namespaces = []string{greedy.namespace}
		o.beforeRead = func(r *http.Request) {
			if strings.Contains(r.URL.Path, "/"+greedy.namespace+"/electiongroups/missing-") {
				<-created
				read.Add(1)
				time.Sleep(100 * time.Millisecond)
			}
		}
	})
	e.createGroup("ledger", nil, "ledger-0")
	for i := range pods {
		greedy.selectedPod(fmt.Sprint("greedy-", i), fmt.Sprint("missing-", i), withApp("greedy"))
	}
	e.selectedPod("ledger-0", "", withApp("ledger"))
	close(created)
	e.awaitRecord("ledger-0", "ledger")
	if n := read.Load(); n > pods/2 {
		t.Errorf("got %d of %d pods of the other namespace before, want fewer than half", n, pods)
	}
}
