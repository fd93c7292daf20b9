package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

// probe changes something again and again, each time until the operator has reconciled it.
type probe struct {
	// objects are created first.
	objects string
	// change makes the change with a number. It is nil if done asks the operator itself.
	change func(ctx context.Context, c client.Client, number int) error
	// done reports whether the operator has reconciled that change.
	done func(ctx context.Context, p *prober, number int) (bool, error)
}

// Objects of the probes.
const (
	probeName      = "probe"
	probeNamespace = metav1.NamespaceDefault
	// The probe asks each probePoll whether a change was reconciled, and then waits for probeRest before the next one.
	probePoll = 5 * time.Millisecond
	probeRest = 50 * time.Millisecond
)

func object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

func patch(ctx context.Context, c client.Client, o client.Object, text string, arguments ...any) error {
	return c.Patch(ctx, o, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, text, arguments...)))
}

func podProbe() probe {
	pod := func(number int) *unstructured.Unstructured {
		return object("v1", "Pod", probeNamespace, fmt.Sprintf("probe-%d", number))
	}
	return probe{
		objects: `apiVersion: v1
kind: Node
metadata: {name: probe}
status:
  allocatable: {cpu: "4", memory: 4Gi, pods: "100"}
  capacity: {cpu: "4", memory: 4Gi, pods: "100"}
  conditions: [{type: Ready, status: "True"}]
`,
		change: func(ctx context.Context, c client.Client, number int) error {
			old := pod(number - 1)
			if err := client.IgnoreNotFound(c.Delete(ctx, old, client.GracePeriodSeconds(0))); err != nil {
				return err
			}
			o := pod(number)
			o.Object["spec"] = map[string]any{
				"containers":  []any{map[string]any{"name": "main", "image": "none"}},
				"tolerations": []any{map[string]any{"operator": "Exists"}}, // No kubelet says that the node is ready.
			}
			err := c.Create(ctx, o)
			if exists := c.Get(ctx, client.ObjectKeyFromObject(o), o); exists == nil {
				return nil // Perhaps the answer to an earlier request was lost.
			}
			return err
		},
		done: func(ctx context.Context, p *prober, number int) (bool, error) {
			o := pod(number)
			err := p.client.Get(ctx, client.ObjectKeyFromObject(o), o)
			node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
			return node != "", err
		},
	}
}

func clusterQueueProbe() probe {
	get := func() *unstructured.Unstructured {
		return object("kueue.x-k8s.io/v1beta2", "ClusterQueue", "", probeName)
	}
	return probe{
		objects: "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: probe}\nspec: " +
			"{namespaceSelector: {}}\n",
		change: func(ctx context.Context, c client.Client, number int) error {
			return patch(ctx, c, get(), `{"spec":{"stopPolicy":%q}}`, []string{"None", "Hold"}[number%2])
		},
		done: func(ctx context.Context, p *prober, _ int) (bool, error) {
			o := get()
			err := p.client.Get(ctx, client.ObjectKeyFromObject(o), o)
			conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			for _, condition := range conditions {
				fields, _ := condition.(map[string]any)
				if observed, _, _ := unstructured.NestedInt64(fields, "observedGeneration"); observed == o.GetGeneration() {
					return true, err
				}
			}
			return false, err
		},
	}
}

func scaledObjectProbe() probe {
	return probe{
		objects: `apiVersion: apps/v1
kind: Deployment
metadata: {name: probe-keda, namespace: default}
spec:
  replicas: 0
  selector: {matchLabels: {app: probe}}
  template:
    metadata: {labels: {app: probe}}
    spec: {containers: [{name: main, image: none}]}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: probe, namespace: default}
spec:
  scaleTargetRef: {name: probe-keda}
  triggers: [{type: cron, metadata: {timezone: Etc/UTC, start: 0 6 * * *, end: 0 20 * * *, desiredReplicas: "10"}}]
`,
		change: func(ctx context.Context, c client.Client, number int) error {
			return patch(ctx, c, object("keda.sh/v1alpha1", "ScaledObject", probeNamespace, probeName),
				`{"spec":{"maxReplicaCount":%d}}`, 100+number)
		},
		done: func(ctx context.Context, p *prober, number int) (bool, error) {
			o := object("autoscaling/v2", "HorizontalPodAutoscaler", probeNamespace, "keda-hpa-probe")
			err := client.IgnoreNotFound(p.client.Get(ctx, client.ObjectKeyFromObject(o), o))
			replicas, _, _ := unstructured.NestedInt64(o.Object, "spec", "maxReplicas")
			return replicas == int64(100+number), err
		},
	}
}

// The port of a picker's health service, and the port at which agents carry connections to it.
const pickerPort, servicePort = 9003, 7600

// pickerProbe asks a picker whether it is ready, by a new connection each time.
func pickerProbe() probe {
	return probe{
		objects: `apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: probe, namespace: default}
spec:
  selector: {matchLabels: {app: none}}
  targetPorts: [{number: 8000}]
  endpointPickerRef: {name: none, port: {number: 9002}}
`,
		done: func(ctx context.Context, p *prober, _ int) (bool, error) {
			to := "passthrough:" + p.addresses[rand.N(len(p.addresses))] // as kube-proxy does
			connection, err := grpc.NewClient(to, grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 100 * time.Millisecond}))
			if err != nil {
				return false, err
			}
			defer connection.Close()
			answer, err := healthpb.NewHealthClient(connection).Check(ctx, &healthpb.HealthCheckRequest{})
			return answer.GetStatus() == healthpb.HealthCheckResponse_SERVING, err
		},
	}
}

// prober runs a probe.
type prober struct {
	probe     probe
	client    client.Client
	addresses []string // of the replicas, or of their agents

	mutex   sync.Mutex
	effects []int64 // when a change had been reconciled
	failed  error   // the last error, for messages
}

// create creates the probe's objects.
func (p *prober) create(ctx context.Context) error {
	for document := range strings.SplitSeq(p.probe.objects, "---\n") {
		var fields map[string]any
		if err := yaml.Unmarshal([]byte(document), &fields); err != nil {
			return err
		}
		if err := client.IgnoreAlreadyExists(p.client.Create(ctx, &unstructured.Unstructured{Object: fields})); err != nil {
			return err
		}
	}
	return nil
}

// run makes changes until ctx ends. A request that fails is repeated: the API server may be away.
func (p *prober) run(ctx context.Context) {
	for number := 1; ctx.Err() == nil; number++ {
		if p.probe.change != nil {
			p.until(ctx, func(ctx context.Context) (bool, error) { return true, p.probe.change(ctx, p.client, number) })
		}
		p.until(ctx, func(ctx context.Context) (bool, error) { return p.probe.done(ctx, p, number) })
		p.mutex.Lock()
		p.effects = append(p.effects, monotonic())
		p.mutex.Unlock()
		_ = benchmark.Wait(ctx, probeRest) // The loop ends with ctx.
	}
}

func (p *prober) until(ctx context.Context, do func(context.Context) (bool, error)) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, 2*time.Second)
		done, err := do(limited)
		cancel()
		if done && err == nil {
			return
		}
		if err != nil {
			p.mutex.Lock()
			p.failed = err
			p.mutex.Unlock()
		}
		_ = benchmark.Wait(ctx, probePoll)
	}
}

// after reports how many changes have been reconciled since a time.
func (p *prober) after(since int64) int { return len(p.since(since)) }

// since returns when changes were reconciled after a time.
func (p *prober) since(since int64) []int64 {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	first, _ := slices.BinarySearch(p.effects, since)
	return slices.Clone(p.effects[first:])
}

// gap returns the longest time between two successive effects of which the second one was after a moment.
func (p *prober) gap(since int64) time.Duration {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	var longest int64
	for i := len(p.effects) - 1; i > 0 && p.effects[i] > since; i-- {
		longest = max(longest, p.effects[i]-p.effects[i-1])
	}
	return time.Duration(longest)
}

// median returns the median of the times between two successive effects after a moment.
func (p *prober) median(since int64) time.Duration {
	effects := p.since(since)
	var all []int64
	for i := 1; i < len(effects); i++ {
		all = append(all, effects[i]-effects[i-1])
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return time.Duration(all[len(all)/2])
}

func (p *prober) lastError() error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.failed
}
