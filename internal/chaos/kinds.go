package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Access is what a fault needs beyond the API server.
type Access int

// The kinds of access.
const (
	// ByAPI: requests to the API server suffice.
	ByAPI Access = iota
	// ByMachine: control over the machines of the cluster, which is a kind cluster on this computer.
	ByMachine
)

// Expect is what happens to the coordinator.
type Expect int

// The expectations.
const (
	// ElectionExpected: another member must be elected.
	ElectionExpected Expect = iota
	// ElectionPossible: it depends on the application.
	ElectionPossible
	// NoElection: the coordinator stays, unless the machine is so busy that agents suspect each other.
	NoElection
)

// Kind is a kind of fault.
type Kind struct {
	Name string
	// Effect describes the fault.
	Effect string
	Access Access
	Expect Expect
	// Held: the fault lasts until it is undone. Other faults are over at once.
	Held bool
	// Ousts: no victim can be the next coordinator.
	Ousts bool
	// Shared: the fault also concerns other groups of the cluster.
	Shared bool
	// OfGroup: only a group reacts to it.
	OfGroup bool
}

// The names of the kinds.
const (
	Pod       = "pod"
	ForcePod  = "force-pod"
	Two       = "two"
	All       = "all"
	Rollout   = "rollout"
	Evict     = "evict"
	Cordon    = "cordon"
	Drain     = "drain"
	Manager   = "manager"
	KillAgent = "agent"
	KillApp   = "app"
	Freeze    = "freeze"
	Node      = "node"
	Partition = "partition"
	Loss      = "loss"
	Delay     = "delay"
	APIServer = "apiserver"
)

var kinds = []Kind{
	{Name: Pod, Effect: "deletes the coordinator's pod", Ousts: true},
	{Name: ForcePod, Effect: "deletes the coordinator's pod by force, without grace period", Ousts: true},
	{Name: Two, Effect: "deletes the pods of the coordinator and of its successor by force", Ousts: true},
	{Name: All, Effect: "deletes all pods of the group by force", Ousts: true},
	{Name: Rollout, Effect: "restarts all pods one after the other, as kubectl rollout restart does"},
	{Name: Evict, Effect: "evicts the coordinator's pod, if its disruption budget permits it", Ousts: true},
	{Name: Cordon, Effect: "cordons the coordinator's node", OfGroup: true, Held: true, Shared: true, Ousts: true},
	{
		Name: Drain, Effect: "cordons the coordinator's node and evicts the group's pods from it",
		Held: true, Shared: true, Ousts: true,
	},
	{Name: Manager, Effect: "deletes all pods of the operator", OfGroup: true, Expect: NoElection, Shared: true},
	{Name: KillAgent, Effect: "kills the coordinator's agent with SIGKILL", OfGroup: true, Access: ByMachine},
	{
		Name: KillApp, Effect: "kills the application beside the coordinator with SIGKILL",
		Access: ByMachine, Expect: ElectionPossible,
	},
	{
		Name: Freeze, Effect: "stops all processes of the coordinator's pod with SIGSTOP",
		Access: ByMachine, Held: true, Ousts: true,
	},
	{Name: Node, Effect: "pauses the coordinator's node", Access: ByMachine, Held: true, Shared: true, Ousts: true},
	{
		Name: Partition, Effect: "cuts the coordinator's pod off from the other members only", OfGroup: true,
		Access: ByMachine, Held: true, Ousts: true,
	},
	{
		Name: Loss, Effect: "drops 30 % of the packets between the coordinator's pod and the other members for 5 s",
		OfGroup: true, Access: ByMachine, Expect: ElectionPossible, Held: true,
	},
	{
		Name:    Delay,
		Effect:  "delays all packets from and to the coordinator's pod by 300 ms for 5 s, if the kernel has netem",
		OfGroup: true, Access: ByMachine, Expect: ElectionPossible, Held: true,
	},
	{
		Name: APIServer, Effect: "disconnects the nodes of the control plane from all others for 20 s", Access: ByMachine,
		Expect: NoElection, Held: true, Shared: true,
	},
}

// Kinds returns all kinds.
func Kinds() []Kind { return slices.Clone(kinds) }

// KindNames returns the names of all kinds.
func KindNames() (names []string) {
	for _, k := range kinds {
		names = append(names, k.Name)
	}
	return names
}

// ParseKinds returns the kinds of these names.
func ParseKinds(names []string) ([]Kind, error) {
	var found []Kind
	for _, name := range names {
		at := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("unknown kind of fault %q: choose some of %s", name, strings.Join(KindNames(), ", "))
		}
		if slices.ContainsFunc(found, func(k Kind) bool { return k.Name == name }) {
			return nil, fmt.Errorf("kind %s is named twice; name it once", name)
		}
		found = append(found, kinds[at])
	}
	return found, nil
}

// Step is a fault in the schedule, and the additional pause before it. Its length varies, so that faults don't always
// coincide with the same phase of periodic tasks.
type Step struct {
	Kind   Kind
	Jitter time.Duration
}

const maxJitter = time.Second

// Schedule returns the faults for a seed. Every kind occurs once before any occurs again.
func Schedule(seed uint64, kinds []Kind, faults int) []Step {
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a schedule isn't a secret
	var steps []Step
	for len(steps) < faults {
		for _, i := range random.Perm(len(kinds)) {
			steps = append(steps, Step{Kind: kinds[i], Jitter: time.Duration(random.Int64N(int64(maxJitter)))})
		}
	}
	return steps[:faults]
}
