package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
	"github.com/conclave-dev/conclave/internal/election"
)

// kill is one kill of the coordinator, at a moment of CLOCK_BOOTTIME, and the time until
// all survivors knew the next coordinator.
type kill struct {
	at, took time.Duration
}

// Phases says where the time of failovers goes, in consecutive phases. They come from the
// traces of the agents. Writing these takes time, too.
type Phases struct {
	// Noticed: from the kill until the successor knows that the process has ended.
	Noticed *benchmark.Series `json:"noticed"`
	// Claimed: from then until the successor has won the election, and requests grants.
	Claimed *benchmark.Series `json:"claimed"`
	// Granted: from then until a majority has granted. In Available it is 0.
	Granted *benchmark.Series `json:"granted"`
	// Announced: from then until the last survivor follows the successor. This includes
	// survivors that notice the end of the process later than the successor.
	Announced *benchmark.Series `json:"announced"`
	// Observed: from then until the benchmark has read the last event.
	Observed *benchmark.Series `json:"observed"`
}

// boottime reads the clock of traces.
func boottime() (time.Duration, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	return time.Duration(now.Nano()), err
}

// tracedStep is the part of a step of a trace that matters here.
type tracedStep struct {
	Now  int64              `json:"now"`
	Kind election.InputKind `json:"kind"`
	Send []struct {
		Kind election.Kind `json:"kind"`
	} `json:"send"`
	Events []struct {
		Kind election.EventKind `json:"kind"`
	} `json:"events"`
}

func (s *tracedStep) sends(kind election.Kind) bool {
	for _, m := range s.Send {
		if m.Kind == kind {
			return true
		}
	}
	return false
}

func (s *tracedStep) emits(kind election.EventKind) bool {
	for _, e := range s.Events {
		if e.Kind == kind {
			return true
		}
	}
	return false
}

// tracedAgent has the steps of one run of an agent.
type tracedAgent struct {
	Agent  string `json:"agent"`
	Origin int64  `json:"origin"`
	steps  []tracedStep
}

// after returns the moment of the first step that satisfies a condition after another
// moment.
func (a *tracedAgent) after(moment time.Duration, holds func(*tracedStep) bool) (time.Duration, bool) {
	for i := range a.steps {
		if at := time.Duration(a.Origin + a.steps[i].Now); at >= moment && holds(&a.steps[i]) {
			return at, true
		}
	}
	return 0, false
}

func readTraces(folder string) ([]*tracedAgent, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	var agents []*tracedAgent
	for _, path := range paths {
		agent, err := readTrace(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read the trace %s: %w", path, err)
		}
		agents = append(agents, agent)
	}
	return agents, nil
}

func readTrace(path string) (*tracedAgent, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := json.NewDecoder(bufio.NewReader(file))
	agent := &tracedAgent{}
	if err := lines.Decode(agent); err != nil {
		return nil, err
	}
	for {
		var step tracedStep
		err := lines.Decode(&step)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // The process was killed while it wrote.
			return agent, nil
		}
		if err != nil {
			return nil, err
		}
		agent.steps = append(agent.steps, step)
	}
}

// phasesOf divides each failover into phases.
func phasesOf(kills []kill, agents []*tracedAgent) (*Phases, error) {
	var noticed, claimed, granted, announced, observed []time.Duration
	for i, k := range kills {
		successor, acquired := successorOf(k, agents)
		if successor == nil {
			return nil, fmt.Errorf("kill %d: the traces have no next tenure", i+1)
		}
		ended, ok := successor.after(k.at, func(s *tracedStep) bool { return s.Kind == election.Ended })
		if !ok || ended > acquired {
			continue // It was suspected for another reason.
		}
		requested, ok := successor.after(ended, func(s *tracedStep) bool { return s.sends(election.Beat) })
		if !ok || requested > acquired {
			requested = acquired
		}
		known := acquired
		for _, agent := range agents {
			recognized, ok := agent.after(k.at, func(s *tracedStep) bool { return s.emits(election.Recognized) })
			if ok && recognized < k.at+k.took {
				known = max(known, recognized)
			}
		}
		noticed = append(noticed, ended-k.at)
		claimed = append(claimed, requested-ended)
		granted = append(granted, acquired-requested)
		announced = append(announced, known-acquired)
		observed = append(observed, k.at+k.took-known)
	}
	return &Phases{
		Noticed: benchmark.NewSeries(noticed), Claimed: benchmark.NewSeries(claimed), Granted: benchmark.NewSeries(granted),
		Announced: benchmark.NewSeries(announced), Observed: benchmark.NewSeries(observed),
	}, nil
}

// successorOf returns the agent whose tenure was the first after a kill, and its start.
func successorOf(k kill, agents []*tracedAgent) (successor *tracedAgent, acquired time.Duration) {
	for _, agent := range agents {
		at, ok := agent.after(k.at, func(s *tracedStep) bool { return s.emits(election.TenureStarted) })
		if ok && (successor == nil || at < acquired) {
			successor, acquired = agent, at
		}
	}
	return successor, acquired
}

func (p *Phases) print(out io.Writer, g *Group) {
	if p == nil {
		return
	}
	fmt.Fprintf(out, "%d agents, %s: phases of failovers, with traces, in ms: median, p99\n", g.Agents, g.Mode)
	for _, phase := range []struct {
		name   string
		series *benchmark.Series
	}{
		{"the successor notices the end of the process", p.Noticed},
		{"it wins the election", p.Claimed},
		{"a majority grants", p.Granted},
		{"the last survivor follows it", p.Announced},
		{"the benchmark reads the last event", p.Observed},
	} {
		if phase.series != nil {
			fmt.Fprintf(out, "    %-45s %8.2f %8.2f\n", phase.name, phase.series.Median, phase.series.P99)
		}
	}
}
