package agents

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// faultInjector injects random faults into a group. The seed determines the faults, but
// not the processes' reaction to them, so a failure may not be reproducible.
type faultInjector struct {
	env    *env
	rng    *rand.Rand
	faults []fault
	// faulty are the agents with a fault, and partitioned is whether the network has one.
	faulty      map[string]bool
	partitioned bool
	repairs     []repair
	count       int
}

// fault injects a fault. It returns a description, and how to repair the fault. The
// description is empty if the fault isn't possible at the moment.
type fault func(*faultInjector) (description string, undo repair, err error)

// repair undoes a fault.
type repair func() error

var (
	agentFaults = []fault{
		onAgent((*faultInjector).killPod), onAgent((*faultInjector).killApplication), onAgent((*faultInjector).pauseAgent),
		onAgent((*faultInjector).pausePod), onAgent((*faultInjector).pauseApplication), onAgent((*faultInjector).terminate),
		(*faultInjector).stepDown,
	}
	// agentOnlyFaults leave an application behind that relies on its lease. In Majority, a process counts as ended when
	// its agent has ended, so these faults would violate the assumptions of that mode.
	agentOnlyFaults = []fault{onAgent((*faultInjector).killAgent)}
	networkFaults   = []fault{
		(*faultInjector).isolate, (*faultInjector).split, (*faultInjector).dropPackets, (*faultInjector).bridge,
	}
)

// run injects faults, one after the other or up to three at once, repairs them, and usually
// waits until the group has recovered.
func (f *faultInjector) run(faults int) error {
	for f.count < faults {
		f.env.register.Add(1)
		together := 1
		for f.rng.IntN(3) == 0 && together < 3 {
			together++
		}
		for range together {
			if err := f.injectOne(); err != nil {
				return err
			}
			if err := f.pause(f.rng.IntN(250)); err != nil {
				return err
			}
		}
		if err := f.repairAll(); err != nil {
			return err
		}
		// Sometimes, inject the next fault before the group has recovered.
		if f.rng.IntN(4) > 0 {
			if err := f.env.awaitRecovery(); err != nil {
				return fmt.Errorf("after fault %d: %w", f.count, err)
			}
		}
	}
	return f.env.awaitRecovery()
}

func (f *faultInjector) injectOne() error {
	description, undo, err := f.faults[f.rng.IntN(len(f.faults))](f)
	if err != nil {
		return fmt.Errorf("fault %d: %s: %w", f.count+1, description, err)
	}
	if description == "" {
		return nil // This fault isn't possible at the moment.
	}
	f.count++
	f.env.logEvent("fault %d: %s", f.count, description)
	if undo != nil {
		f.repairs = append(f.repairs, undo)
	}
	return nil
}

// pause waits while a fault persists.
func (f *faultInjector) pause(millis int) error {
	timer := time.NewTimer(time.Duration(millis) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-f.env.ctx.Done():
		return f.env.ctx.Err()
	}
}

func (f *faultInjector) repairAll() error {
	var err error
	for _, at := range f.rng.Perm(len(f.repairs)) {
		err = errors.Join(err, f.repairs[at]())
	}
	f.repairs, f.partitioned = nil, false
	clear(f.faulty)
	f.env.logEvent("repaired all faults")
	return err
}

// onAgent is a fault of an agent without one.
func onAgent(inject func(*faultInjector, string) (string, repair, error)) fault {
	return func(f *faultInjector) (string, repair, error) {
		name := f.pickAgent()
		if name == "" {
			return "", nil, nil
		}
		return inject(f, name)
	}
}

// pickAgent returns an agent without a fault, with a preference for the coordinator. It returns "" if there is none.
func (f *faultInjector) pickAgent() string {
	names := slices.DeleteFunc(f.env.cluster.Names(), func(name string) bool { return f.faulty[name] })
	if len(names) == 0 {
		return ""
	}
	name := names[f.rng.IntN(len(names))]
	if leader := f.env.leader(f.rng); f.rng.IntN(5) < 3 && !f.faulty[leader] {
		name = leader
	}
	f.faulty[name] = true
	return name
}

func (f *faultInjector) killPod(name string) (string, repair, error) {
	f.env.application(name).kill()
	_, err := f.env.cluster.Agent(name).Kill()
	return "killed agent and application " + name, func() error {
		err := f.env.cluster.Agent(name).Start()
		f.env.startApplication(name)
		return err
	}, err
}

func (f *faultInjector) killAgent(name string) (string, repair, error) {
	_, err := f.env.cluster.Agent(name).Kill()
	return "killed agent " + name, f.env.cluster.Agent(name).Start, err
}

func (f *faultInjector) killApplication(name string) (string, repair, error) {
	f.env.application(name).kill()
	return "killed application " + name, func() error {
		f.env.startApplication(name)
		return nil
	}, nil
}

func (f *faultInjector) pauseAgent(name string) (string, repair, error) {
	_, err := f.env.cluster.Agent(name).Stop()
	return "paused agent " + name, f.env.cluster.Agent(name).Continue, err
}

// pausePod pauses both the agent and the application. They continue in random order.
func (f *faultInjector) pausePod(name string) (string, repair, error) {
	application, agent := f.env.application(name), f.env.cluster.Agent(name)
	application.gate.close()
	_, err := agent.Stop()
	applicationFirst := f.rng.IntN(2) == 0
	return "paused agent and application " + name, func() error {
		if applicationFirst {
			application.gate.open()
		}
		err := agent.Continue()
		application.gate.open()
		return err
	}, err
}

func (f *faultInjector) pauseApplication(name string) (string, repair, error) {
	application := f.env.application(name)
	application.gate.close()
	return "paused application " + name, func() error {
		application.gate.open()
		return nil
	}, nil
}

func (f *faultInjector) terminate(name string) (string, repair, error) {
	agent := f.env.cluster.Agent(name)
	return "terminated agent " + name, agent.Start, agent.Terminate()
}

// stepDown asks the coordinator to step down. It refuses if no other process is eligible.
func (f *faultInjector) stepDown() (string, repair, error) {
	leader := f.env.leader(f.rng)
	if f.faulty[leader] {
		return "", nil, nil
	}
	ctx, cancel := context.WithTimeout(f.env.ctx, time.Second)
	defer cancel()
	successor, err := f.env.cluster.StepDown(ctx, leader, "")
	if err != nil {
		return fmt.Sprintf("%s refused to step down: %v", leader, err), nil, nil
	}
	return fmt.Sprintf("%s handed over to %s", leader, successor.Coordinator), nil, nil
}

// partition injects a network fault, unless there is one already.
func (f *faultInjector) partition(description string, cut func() error) (string, repair, error) {
	if f.partitioned {
		return "", nil, nil
	}
	f.partitioned = true
	return description, f.env.cluster.Heal, cut()
}

// shuffledNames returns all agents in random order, often with the coordinator first.
func (f *faultInjector) shuffledNames() []string {
	names := f.env.cluster.Names()
	f.rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	if f.rng.IntN(2) == 0 {
		leader := slices.Index(names, f.env.leader(f.rng))
		names[0], names[leader] = names[leader], names[0]
	}
	return names
}

// isolate separates one agent from all others.
func (f *faultInjector) isolate() (string, repair, error) {
	names := f.shuffledNames()
	return f.partition("isolated "+names[0], func() error { return f.env.cluster.Partition(names[:1], names[1:]) })
}

// split separates the agents into two sets.
func (f *faultInjector) split() (string, repair, error) {
	names := f.shuffledNames()
	at := 1 + f.rng.IntN(len(names)-1)
	return f.partition(fmt.Sprintf("separated %v from %v", names[:at], names[at:]), func() error {
		return f.env.cluster.Partition(names[:at], names[at:])
	})
}

// dropPackets drops the packets of one agent to some others, or of these to that agent.
func (f *faultInjector) dropPackets() (string, repair, error) {
	names := f.shuffledNames()
	at := 2 + f.rng.IntN(len(names)-1)
	outgoing := f.rng.IntN(2) == 0
	var cuts []agentcluster.Cut
	for _, other := range names[1:at] {
		cut := agentcluster.Cut{From: other, To: names[0]}
		if outgoing {
			cut = agentcluster.Cut{From: names[0], To: other}
		}
		cuts = append(cuts, cut)
	}
	return f.partition(fmt.Sprintf("dropping packets: %v", cuts), func() error { return f.env.cluster.Cut(cuts...) })
}

// bridge separates the agents into two sets, except that one agent can reach both.
func (f *faultInjector) bridge() (string, repair, error) {
	names := f.shuffledNames()
	half := 1 + (len(names)-1)/2
	return f.partition(fmt.Sprintf("separated %[2]v from %[3]v, but %[1]s reaches both", names[0], names[1:half],
		names[half:]), func() error {
		return f.env.cluster.Partition(names[1:half], names[half:])
	})
}
