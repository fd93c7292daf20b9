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

// weather strikes a ledger with faults that it draws from a seed. Processes
// don't run by a seed, so the same one only means the same faults.
type weather struct {
	ledger *ledger
	rng    *rand.Rand
	kinds  []kind
	// afflicted are agents with a fault that hasn't been mended, and cut is whether
	// the network has one.
	afflicted map[string]bool
	cut       bool
	mends     []mend
	count     int
}

// kind is a kind of fault. It says what it has done, and how to mend it.
type kind func(*weather) (what string, mended mend, err error)

// mend undoes a fault.
type mend func() error

var (
	atAgents = []kind{(*weather).killPod, (*weather).killApplication, (*weather).stopAgent, (*weather).stopPod, (*weather).freeze, (*weather).terminate, (*weather).stepDown}
	// alone is a fault that leaves an application behind that believes its lease:
	// in Majority, a process counts as ended when its agent is.
	alone     = []kind{(*weather).killAgent}
	atNetwork = []kind{(*weather).isolate, (*weather).divide, (*weather).deafen, (*weather).bridge}
)

// strike strikes with faults, mostly one after the other, sometimes several at
// once, and lets the ledger recover.
func (w *weather) strike(faults int) error {
	for w.count < faults {
		w.ledger.register.Add(1)
		together := 1
		for w.rng.IntN(3) == 0 && together < 3 {
			together++
		}
		for range together {
			if err := w.one(); err != nil {
				return err
			}
			if err := w.last(w.rng.IntN(250)); err != nil {
				return err
			}
		}
		if err := w.mend(); err != nil {
			return err
		}
		// Sometimes the next fault comes before all is well again.
		if w.rng.IntN(4) > 0 {
			if err := w.ledger.recover(); err != nil {
				return fmt.Errorf("after fault %d: %w", w.count, err)
			}
		}
	}
	return w.ledger.recover()
}

func (w *weather) one() error {
	what, mended, err := w.kinds[w.rng.IntN(len(w.kinds))](w)
	if err != nil {
		return fmt.Errorf("fault %d: %s: %w", w.count+1, what, err)
	}
	if what == "" {
		return nil // It can't happen now.
	}
	w.count++
	w.ledger.note("fault %d: %s", w.count, what)
	if mended != nil {
		w.mends = append(w.mends, mended)
	}
	return nil
}

// last lets a fault last. It isn't a wait for anything.
func (w *weather) last(millis int) error {
	timer := time.NewTimer(time.Duration(millis) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-w.ledger.ctx.Done():
		return w.ledger.ctx.Err()
	}
}

func (w *weather) mend() error {
	var err error
	for _, at := range w.rng.Perm(len(w.mends)) {
		err = errors.Join(err, w.mends[at]())
	}
	w.mends, w.cut = nil, false
	clear(w.afflicted)
	w.ledger.note("mended")
	return err
}

// victim is an agent that has no fault: more often than not the one that leads.
// It is empty if there is none.
func (w *weather) victim() string {
	names := slices.DeleteFunc(w.ledger.troupe.Names(), func(name string) bool { return w.afflicted[name] })
	if len(names) == 0 {
		return ""
	}
	victim := names[w.rng.IntN(len(names))]
	if leader := w.ledger.leading(w.rng); w.rng.IntN(5) < 3 && !w.afflicted[leader] {
		victim = leader
	}
	w.afflicted[victim] = true
	return victim
}

func (w *weather) killPod() (string, mend, error) {
	victim := w.victim()
	if victim == "" {
		return "", nil, nil
	}
	w.ledger.application(victim).kill()
	_, err := w.ledger.troupe.Agent(victim).Kill()
	return "agent and application of " + victim + " are killed", func() error {
		err := w.ledger.troupe.Agent(victim).Start()
		w.ledger.open(victim)
		return err
	}, err
}

func (w *weather) killAgent() (string, mend, error) {
	victim := w.victim()
	if victim == "" {
		return "", nil, nil
	}
	_, err := w.ledger.troupe.Agent(victim).Kill()
	return "agent " + victim + " is killed", w.ledger.troupe.Agent(victim).Start, err
}

func (w *weather) killApplication() (string, mend, error) {
	victim := w.victim()
	if victim == "" {
		return "", nil, nil
	}
	w.ledger.application(victim).kill()
	return "the application of " + victim + " is killed", func() error {
		w.ledger.open(victim)
		return nil
	}, nil
}

func (w *weather) stopAgent() (string, mend, error) {
	victim := w.victim()
	if victim == "" {
		return "", nil, nil
	}
	_, err := w.ledger.troupe.Agent(victim).Stop()
	return "agent " + victim + " is stopped", w.ledger.troupe.Agent(victim).Continue, err
}

// stopPod stops both, and lets them go on in either order.
func (w *weather) stopPod() (string, mend, error) {
	victim := w.victim()
	if victim == "" {
		return "", nil, nil
	}
	application, agent := w.ledger.application(victim), w.ledger.troupe.Agent(victim)
	application.gate.freeze()
	_, err := agent.Stop()
	applicationFirst := w.rng.IntN(2) == 0
	return "agent and application of " + victim + " are stopped", func() error {
		if applicationFirst {
			application.gate.thaw()
		}
		err := agent.Continue()
		application.gate.thaw()
		return err
	}, err
}

func (w *weather) freeze() (string, mend, error) {
	victim := w.victim()
	if victim == "" {
		return "", nil, nil
	}
	application := w.ledger.application(victim)
	application.gate.freeze()
	return "the application of " + victim + " is stopped", func() error {
		application.gate.thaw()
		return nil
	}, nil
}

func (w *weather) terminate() (string, mend, error) {
	victim := w.victim()
	if victim == "" {
		return "", nil, nil
	}
	agent := w.ledger.troupe.Agent(victim)
	return "agent " + victim + " is asked to end", agent.Start, agent.Terminate()
}

// stepDown asks the one that leads. It may refuse, if nobody else is well.
func (w *weather) stepDown() (string, mend, error) {
	leader := w.ledger.leading(w.rng)
	if w.afflicted[leader] {
		return "", nil, nil
	}
	ctx, cancel := context.WithTimeout(w.ledger.ctx, time.Second)
	defer cancel()
	heir, err := w.ledger.troupe.StepDown(ctx, leader, "")
	if err != nil {
		return fmt.Sprintf("%s is asked to step down, in vain: %v", leader, err), nil, nil
	}
	return fmt.Sprintf("%s steps down for %s", leader, heir.Coordinator), nil, nil
}

// partition divides the network, unless it is.
func (w *weather) partition(what string, cut func() error) (string, mend, error) {
	if w.cut {
		return "", nil, nil
	}
	w.cut = true
	return what, w.ledger.troupe.Heal, cut()
}

// shuffled are all agents, sometimes with the one that leads in front.
func (w *weather) shuffled() []string {
	names := w.ledger.troupe.Names()
	w.rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	if w.rng.IntN(2) == 0 {
		leader := slices.Index(names, w.ledger.leading(w.rng))
		names[0], names[leader] = names[leader], names[0]
	}
	return names
}

// isolate cuts one off from all others.
func (w *weather) isolate() (string, mend, error) {
	names := w.shuffled()
	return w.partition(names[0]+" is cut off", func() error { return w.ledger.troupe.Partition(names[:1], names[1:]) })
}

// divide makes two sides.
func (w *weather) divide() (string, mend, error) {
	names := w.shuffled()
	at := 1 + w.rng.IntN(len(names)-1)
	return w.partition(fmt.Sprintf("%v and %v don't reach each other", names[:at], names[at:]), func() error {
		return w.ledger.troupe.Partition(names[:at], names[at:])
	})
}

// deafen loses what one sends to some others, or what they send to it.
func (w *weather) deafen() (string, mend, error) {
	names := w.shuffled()
	at := 2 + w.rng.IntN(len(names)-1)
	mute := w.rng.IntN(2) == 0
	var cuts []agentcluster.Cut
	for _, other := range names[1:at] {
		cut := agentcluster.Cut{From: other, To: names[0]}
		if mute {
			cut = agentcluster.Cut{From: names[0], To: other}
		}
		cuts = append(cuts, cut)
	}
	return w.partition(fmt.Sprintf("packets are lost: %v", cuts), func() error { return w.ledger.troupe.Cut(cuts...) })
}

// bridge makes two sides that only one agent reaches both of.
func (w *weather) bridge() (string, mend, error) {
	names := w.shuffled()
	half := 1 + (len(names)-1)/2
	return w.partition(fmt.Sprintf("only %s reaches both %v and %v", names[0], names[1:half], names[half:]), func() error {
		return w.ledger.troupe.Partition(names[1:half], names[half:])
	})
}
