package check

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/plugin/check/rules"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

const (
	// measurementsTimeout limits the time for the measurements of all groups.
	measurementsTimeout = 20 * time.Second
	// parallelMeasurements is the number of agents that are asked at a time.
	parallelMeasurements = 16
)

func (o *options) gatherMeasurements(ctx context.Context, f *rules.Facts) error {
	connected, err := o.cluster.Connect()
	if err != nil {
		return err
	}
	forward, err := o.cluster.Forwarder()
	if err != nil {
		return err
	}
	gatherMeasurements(ctx, connected, f, forward)
	return nil
}

// gatherMeasurements asks the agents of the coordinators how long answers take.
func gatherMeasurements(ctx context.Context, c client.Client, f *rules.Facts, forward clusteraccess.PortForwarder) {
	ctx, cancel := context.WithTimeout(ctx, measurementsTimeout)
	defer cancel()
	f.Measurements = map[types.NamespacedName]rules.Measurement{}
	refused := map[string]error{} // by namespace
	var (
		mu      sync.Mutex
		readers sync.WaitGroup
	)
	add := func(g *v1.ElectionGroup, m rules.Measurement) {
		mu.Lock()
		defer mu.Unlock()
		f.Measurements[client.ObjectKeyFromObject(g)] = m
	}
	slots := make(chan struct{}, parallelMeasurements)
	for i := range f.Groups {
		g := &f.Groups[i]
		if g.Status.Coordinator == nil || f.Group != "" && g.Name != f.Group {
			continue
		}
		err, known := refused[g.Namespace]
		if !known {
			err = clusteraccess.CheckForwarding(ctx, c, g.Namespace, "it")
			refused[g.Namespace] = err
		}
		if err != nil {
			add(g, rules.Measurement{Unknown: err.Error()})
			continue
		}
		readers.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			m, err := readMeasurement(ctx, g, forward)
			if err != nil {
				m = rules.Measurement{Unknown: err.Error()}
			}
			add(g, m)
		})
	}
	readers.Wait()
}

// readMeasurement asks the agent of a group's coordinator.
func readMeasurement(ctx context.Context, g *v1.ElectionGroup,
	forward clusteraccess.PortForwarder,
) (rules.Measurement, error) {
	pod := g.Status.Coordinator.Pod
	var found struct {
		Timing    control.TimingInForce
		Processes []struct {
			Name    string
			Answers *control.Answers
		}
	}
	err := clusteraccess.ReadStatus(ctx, forward, types.NamespacedName{Namespace: g.Namespace, Name: pod}, g.Name, &found)
	switch {
	case ctx.Err() != nil:
		return rules.Measurement{}, fmt.Errorf("no answer within %s", measurementsTimeout)
	case err != nil:
		return rules.Measurement{}, err
	}
	if t := &found.Timing; t.HeartbeatMillis < 1 || t.SuspicionTimeoutMillis <= t.HeartbeatMillis {
		return rules.Measurement{},
			fmt.Errorf("the agent in pod %s reports a suspicion timeout of %d ms and a heartbeat of %d ms", pod,
				t.SuspicionTimeoutMillis, t.HeartbeatMillis)
	}
	m := rules.Measurement{Timing: found.Timing, Size: len(found.Processes)}
	for _, p := range found.Processes {
		if p.Answers != nil {
			m.Members = append(m.Members, rules.MemberAnswers{Pod: p.Name, Answers: *p.Answers})
		}
	}
	return m, nil
}
