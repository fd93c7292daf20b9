package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/chaos/kindnodes"
	"github.com/conclave-dev/conclave/internal/testing/traffic"
)

const (
	// measured is how long clients send requests in a round, and undisturbed how long they do before the fault. It is less
	// than the 10 s after which the programs of a control plane that was paused end, because they have lost their Leases.
	measured, undisturbed = 4 * time.Second, 500 * time.Millisecond
	// quiet is how long the machine starts nothing before a signal, and afterwards.
	quiet = 500 * time.Millisecond
	// settledTime is for how long nothing has changed before a round.
	settledTime = 2 * time.Second

	inNamespace = "--namespace=chaos-traffic"
	// ofRole selects pods by what the operator says about them.
	ofRole = "--selector=role.conclave.dev/traffic="
)

// The faults of the coordinator's pod beside those of kubectl conclave chaos.
const (
	none     = "none"
	kill     = "kill"
	stepDown = "step-down"
)

// trafficKinds are the faults, with titles.
var trafficKinds = [][2]string{
	{none, "no fault"},
	{kill, "agent and application killed"},
	{chaos.ForcePod, "pod deleted by force"},
	{chaos.Pod, "pod deleted"},
	{stepDown, "`step-down`"},
	{chaos.Freeze, "agent and application frozen"},
	{chaos.Partition, "node cut off"},
	{chaos.APIServer, "control plane frozen, then killed"},
	{chaos.Manager, "operator ended, then killed"},
}

// unanswered are how long clients send requests if some get no answer: longer than until they give up.
var unanswered = map[string]time.Duration{chaos.Freeze: 7 * time.Second, chaos.Partition: 7 * time.Second}

// ways are how clients reach the coordinator, with the values of spec.service.via.
var ways = []way{
	{name: "Endpoints", via: "Endpoints", address: "traffic-coordinator:8080"},
	{name: "Agents", via: "Agents", address: "traffic-coordinator:8080"},
	{name: "Label", via: "Endpoints", address: "traffic-label:8080"},
	{name: "Local", via: "Agents", address: "127.0.0.1:7600", fromMember: true},
}

const allWays = "Endpoints,Agents,Label,Local"

type way struct {
	name, via, address string
	// fromMember: the clients are in the pod of a follower.
	fromMember bool
}

//go:embed traffic.yaml
var trafficManifest string

// inPod runs the application of the group, or clients that send requests to an address for some time.
func inPod(ctx context.Context, arguments []string, out io.Writer) error {
	switch {
	case arguments[0] == "serve":
		return client.Run(ctx, "traffic", func(ctx context.Context, _ uint64) error { return traffic.Serve(ctx, ":8080") })
	case arguments[0] == "send" && len(arguments) == 3:
		address, unknown := net.ResolveTCPAddr("tcp", arguments[1])
		duration, err := time.ParseDuration(arguments[2])
		if err = errors.Join(unknown, err); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, duration)
		defer cancel()
		fmt.Fprintln(out, "sending")
		return json.NewEncoder(out).Encode(traffic.Measure(ctx, address.String()))
	}
	return fmt.Errorf("got %q, want serve, or send ADDRESS DURATION", arguments)
}

// measureTraffic measures each fault in some rounds with each way, and writes the results so far after each.
func (s *suite) measureTraffic(ctx context.Context) (err error) {
	kinds := slices.DeleteFunc(slices.Clone(trafficKinds),
		func(k [2]string) bool { return s.kinds != "" && !slices.Contains(strings.Split(s.kinds, ","), k[0]) })
	if s.kinds != "" && len(kinds) != len(strings.Split(s.kinds, ",")) {
		return fmt.Errorf("-kinds: the kinds of -traffic are %q, got %q", trafficKinds, s.kinds)
	}
	names := strings.Split(s.ways, ",")
	chosen := slices.DeleteFunc(slices.Clone(ways), func(w way) bool { return !slices.Contains(names, w.name) })
	if len(chosen) != len(names) {
		return fmt.Errorf("-ways: the ways are %s, got %q", allWays, s.ways)
	}
	var all []*round
	if s.keep {
		if all, err = read[round](s.results, "traffic"); err != nil {
			return err
		}
	}
	c := &s.cluster
	defer func() { err = errors.Join(err, c.deleteGroups(context.WithoutCancel(ctx))) }()
	err = c.prepare(ctx, "test/chaos")
	for pods := range 2 { // The manifest needs an operator of one pod.
		if err == nil {
			err = c.scaleOperator(ctx, pods)
		}
	}
	if err == nil {
		_, err = c.kubectl(ctx, trafficManifest, "apply", "-f", "-")
	}
	for i := 0; err == nil && i < len(kinds)*s.traffic*len(chosen); i++ {
		w := &chosen[i%len(chosen)]
		if i/len(chosen)%2 == 1 { // Each change of the Service costs time, so every other round has the opposite order.
			w = &chosen[len(chosen)-1-i%len(chosen)]
		}
		r := &round{Fault: kinds[i/len(chosen)/s.traffic][0], Via: w.name}
		if err = s.measure(ctx, r, w); err == nil {
			report("%s by %s: %+v", r.Fault, r.Via, r.Clients)
			all = append(all, r)
			err = write(s.results, "traffic", all, trafficPage(all))
		}
	}
	return err
}

// round is what clients have seen of one fault.
type round struct {
	Fault string `json:"fault"`
	Via   string `json:"via"`
	traffic.Clients
}

// trafficPage is a Markdown document.
func trafficPage(all []*round) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# What clients of a Service see: results\n\nWritten by `make chaos ARGS=\"-traffic ROUNDS\"`. "+
		"[traffic.md](../traffic.md#measured) explains it. Milliseconds and requests of a round, median/maximum; with 100 "+
		"rounds median/p99/maximum. Machine: %s, load average %.1f.\n\n"+
		"|fault|via|rounds|new: gap|failed|waited|kept: gap|failed|waited|\n|%s\n",
		machine(), load(), strings.Repeat("---|", 9))
	for _, k := range trafficKinds {
		for _, w := range ways {
			var rounds []traffic.Clients
			for _, r := range all {
				if r.Fault == k[0] && r.Via == w.name {
					rounds = append(rounds, r.Clients)
				}
			}
			if len(rounds) > 0 {
				fmt.Fprintf(&b, "|%s|%s|%d|%s|\n", k[1], w.name, len(rounds), traffic.Cells(rounds))
			}
		}
	}
	return b.Bytes()
}

// measure measures one fault.
func (s *suite) measure(ctx context.Context, r *round, w *way) (err error) {
	v, err := s.settled(ctx, w.via)
	from := "clients"
	if err == nil {
		err = v.forgetConnections(ctx)
	}
	if err == nil && w.fromMember {
		from, err = v.kubectl(ctx, "", "get", inNamespace, "pod", ofRole+"follower",
			"--output=jsonpath={.items[0].metadata.name}")
	}
	if err == nil && r.Fault == chaos.Manager {
		err = v.scaleOperator(ctx, 0)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.undo(context.WithoutCancel(ctx), r.Fault)) }()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	clients := exec.CommandContext(ctx, "kubectl", "exec", inNamespace, from, "--container=application", "--",
		"/chaos", "send", w.address, cmp.Or(unanswered[r.Fault], measured).String())
	clients.Stderr = os.Stderr
	output, err := clients.StdoutPipe()
	if err == nil {
		err = clients.Start()
	}
	if err != nil {
		return err
	}
	lines := bufio.NewReader(output)
	if _, err = lines.ReadString('\n'); err == nil {
		time.Sleep(undisturbed)
		err = errors.Join(v.inject(ctx, r.Fault), json.NewDecoder(lines).Decode(&r.Clients))
	}
	return errors.Join(err, clients.Wait())
}

// forgetConnections makes the node of the clients forget the connections of earlier rounds. For two minutes, it sends
// packets from the same port to the pod where earlier ones went, also if that has gone.
func (v *victim) forgetConnections(ctx context.Context) error {
	node, err := v.kubectl(ctx, "", "get", inNamespace, "pod/clients", "--output=jsonpath={.spec.nodeName}")
	if err == nil {
		_, err = execute(ctx, "", v.nodes.Runtime, "exec", node, "sh", "-c",
			"conntrack -D -p tcp --orig-port-dst 8080 >/dev/null || [ $? = 1 ]") // There may be none.
	}
	return err
}

// victim is the coordinator's pod.
type victim struct {
	*cluster

	nodes      kindnodes.Nodes
	pod, node  string
	containers []string
	// control are the nodes of the control plane.
	control []string
}

// inject injects a fault. While the control plane is frozen, it waits: the clients can't report what they have seen.
func (v *victim) inject(ctx context.Context, kind string) (err error) {
	switch kind {
	case none:
		return nil
	case chaos.Pod:
		return v.change(ctx, "delete", "pod", v.pod, "--wait=false")
	case chaos.ForcePod:
		return v.change(ctx, "delete", "pod", v.pod, "--wait=false", "--force", "--grace-period=0")
	case stepDown:
		_, err = execute(ctx, "", "bin/kubectl-conclave", "step-down", "traffic", inNamespace)
		return err
	case chaos.Freeze:
		return v.nodes.Signal(ctx, v.node, "STOP", v.containers...)
	case chaos.Partition:
		return v.nodes.Drop(ctx, kindnodes.Network{Node: v.node}, kindnodes.Packets{})
	case chaos.APIServer:
		err = errors.Join(v.nodes.Pause(ctx, v.control...), v.inject(ctx, kill))
		select {
		case <-time.After(measured - undisturbed):
		case <-ctx.Done():
		}
		return errors.Join(err, v.nodes.Unpause(context.WithoutCancel(ctx), v.control...))
	}
	return v.nodes.Signal(ctx, v.node, "KILL", v.containers...)
}

// undo undoes a fault. It replaces a pod that is frozen, or whose containers the kubelet would restart later each time.
func (v *victim) undo(ctx context.Context, kind string) (err error) {
	switch kind {
	case chaos.Partition:
		return v.nodes.Heal(ctx, kindnodes.Network{Node: v.node})
	case chaos.Manager:
		err = v.scaleOperator(ctx, 1)
	case kill, chaos.Freeze, chaos.APIServer:
	default:
		return nil
	}
	return errors.Join(err, v.inject(ctx, chaos.ForcePod))
}

// settled waits until the group has settled, and returns its coordinator's pod.
func (s *suite) settled(ctx context.Context, via string) (*victim, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	v := &victim{cluster: &s.cluster, nodes: kindnodes.Nodes{Runtime: s.machines, Quiet: quiet}}
	var err error
	for before, now := "", ""; err == nil; time.Sleep(settledTime) {
		for _, condition := range [][]string{
			{"patch", "electiongroup/traffic", "--type=merge", fmt.Sprintf(`--patch={"spec":{"service":{"via":%q}}}`, via)},
			{"wait", "--for=condition=Ready", "pod", "--all", "--timeout=-1s"},
			{"wait", "--for=condition=Degraded=false", "electiongroup/traffic", "--timeout=-1s"},
			{"wait", "--for=condition=Ready", "electiongroup/traffic", "--timeout=-1s"},
		} {
			if err == nil {
				err = v.change(ctx, condition...)
			}
		}
		if err == nil {
			now, err = v.kubectl(ctx, "", "get", inNamespace, "electiongroup,pod,endpointslice",
				"--output=jsonpath={.items[*].metadata.resourceVersion}")
		}
		if now == before {
			break
		}
		before = now
	}
	var text string
	if err == nil {
		text, err = v.kubectl(ctx, "", "get", inNamespace, "pod", ofRole+"coordinator",
			"--output=jsonpath={.items[0].metadata.name} {.items[0].spec.nodeName} {..containerID}")
	}
	if fields := strings.Fields(text); len(fields) == 4 {
		v.pod, v.node = fields[0], fields[1]
		for _, id := range fields[2:] {
			v.containers = append(v.containers, id[strings.LastIndexByte(id, '/')+1:])
		}
		v.control, err = v.nodes.ControlPlane(ctx, v.node)
		return v, err
	}
	return nil, fmt.Errorf("the group hasn't settled: %q: %w", text, err)
}

func (c *cluster) change(ctx context.Context, arguments ...string) error {
	_, err := c.kubectl(ctx, "", append(arguments, inNamespace)...)
	return err
}

// scaleOperator lets the operator have no pod, or one that works.
func (c *cluster) scaleOperator(ctx context.Context, pods int) error {
	condition := map[int]string{0: "delete", 1: "condition=Ready"}[pods]
	for _, arguments := range [][]string{
		{"scale", "deployment/conclave-manager", fmt.Sprintf("--replicas=%d", pods)},
		{"rollout", "status", "deployment/conclave-manager"},
		{"wait", "pod", "--selector=app.kubernetes.io/name=conclave", "--for=" + condition, "--timeout=5m"},
	} {
		if _, err := c.kubectl(ctx, "", append(arguments, "--namespace=conclave-system")...); err != nil {
			return err
		}
	}
	return nil
}
