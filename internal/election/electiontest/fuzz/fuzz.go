// Package fuzz is the fuzz harness for Machines. It decodes inputs of every kind, from any process, from bytes, and
// checks what a Machine must never do, whatever its peers send:
//
//   - panic;
//   - send or report without bound in one step;
//   - send in the name of another process, to a process that doesn't exist, or in a term that doesn't exist;
//   - acquire the office while it isn't eligible;
//   - return to an older term of the same coordinator, or to an older moment of its logical clock;
//   - change with its copy, or when the caller changes its inputs or outputs;
//   - have different outputs or encodings in equal states;
//   - have equal encodings of states that behave differently;
//   - depend on when its clock started.
//
// Time never goes back, and logical clocks are far from overflowing: both are
// responsibilities of the caller of a Machine.
package fuzz

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// Maker creates the Machine under test. Its clock starts at start.
type Maker func(c election.Config, start election.Tick) (election.Machine, error)

// MaxInputs is the maximum number of inputs in a run.
const MaxInputs = 256

// shift is the difference between the clocks of the Machine and its twin, which must behave alike.
const shift election.Tick = 1_000_003

// harness drives one Machine, its twin, whose clock started later, and its
// shadow, which reached a state with the same encoding by another input.
type harness struct {
	input   source
	env     environment
	machine election.Machine
	twin    election.Machine
	shadow  election.Machine
	lamport uint64
	// ineligible: the last input about its application made the Machine ineligible.
	ineligible bool
}

// Run creates a Machine and steps it with the inputs that data encodes. An
// error describes a violated rule, and the input that violated it.
func Run(data []byte, maker Maker) error {
	h := harness{input: source{data: data}}
	c := h.env.newConfig(&h.input)
	var err error
	if h.machine, err = maker(c, 0); err != nil {
		return nil //nolint:nilerr // a configuration that was refused needs no check
	}
	if h.twin, err = maker(c, shift); err != nil {
		return fmt.Errorf("refused when its clock starts at %d: %w", shift, err)
	}
	for range MaxInputs {
		if h.input.empty() {
			return nil
		}
		in := h.env.input(&h.input, h.machine.Deadline())
		if err := h.step(in); err != nil {
			return fmt.Errorf("%s (%+v): %w", in.Describe(), in, err)
		}
	}
	return nil
}

// Seeds returns inputs to start from: pseudorandom, always the same.
func Seeds() [][]byte {
	seeds, state := [][]byte(nil), uint64(0)
	for range 200 {
		seed := []byte(nil)
		for len(seed) < 1500 {
			state = state*6364136223846793005 + 1442695040888963407
			seed = binary.LittleEndian.AppendUint32(seed, uint32(state>>32))
		}
		seeds = append(seeds, seed)
	}
	return seeds
}

// step passes the same input to the Machine, its copy and its twin.
func (h *harness) step(in election.Input) error {
	before := h.encode(h.machine, h.env.now)
	last := h.machine.Status()
	copied := h.machine.Clone()
	if !bytes.Equal(h.encode(copied, h.env.now), before) {
		return fmt.Errorf("a copy has a different encoding")
	}
	var out, outCopy, outTwin election.Output
	copied.Step(deepCopy(in), &outCopy)
	if !bytes.Equal(h.encode(h.machine, h.env.now), before) {
		return fmt.Errorf("stepping a copy changes the original")
	}
	sibling := h.machine.Clone()
	sibling.Step(h.env.mutate(&h.input, deepCopy(in)), new(election.Output))
	idle := h.machine.Clone()
	given := deepCopy(in)
	h.machine.Step(given, &out)
	if !bytes.Equal(h.encode(idle, h.env.now), before) {
		return fmt.Errorf("stepping the original changes its copy")
	}
	if err := h.compareClone(copied, &out, &outCopy); err != nil {
		return err
	}
	h.twin.Step(shifted(deepCopy(in)), &outTwin)
	if err := h.checkStep(in, &out, last); err != nil {
		return err
	}
	if err := h.compareTwin(&out, &outTwin); err != nil {
		return err
	}
	if err := h.compareShadow(in, &out); err != nil {
		return err
	}
	h.chooseShadow(sibling)
	return h.overwriteShared(given, &out)
}

// compareClone compares the Machine with its copy after the same input.
func (h *harness) compareClone(copied election.Machine, out, outCopy *election.Output) error {
	switch {
	case fmt.Sprint(*out) != fmt.Sprint(*outCopy):
		return fmt.Errorf("equal inputs give different outputs:\n%+v\n%+v", *out, *outCopy)
	case !bytes.Equal(h.encode(h.machine, h.env.now), h.encode(copied, h.env.now)):
		return fmt.Errorf("equal inputs give different states")
	case h.machine.Status() != copied.Status() || h.machine.Deadline() != copied.Deadline():
		return fmt.Errorf("equal inputs give a different status or deadline")
	case !slices.Equal(h.machine.Rows(nil), copied.Rows(nil)):
		return fmt.Errorf("equal inputs give different tables")
	}
	return nil
}

// compareTwin compares the Machine with its twin: nothing may depend on when a process's clock started.
func (h *harness) compareTwin(out, outTwin *election.Output) error {
	for i := range outTwin.Send {
		if m := &outTwin.Send[i]; hasMoment(m.Kind) {
			m.Hold.Sent -= shift
		}
	}
	if a, b := fmt.Sprint(*out), fmt.Sprint(*outTwin); a != b {
		return fmt.Errorf("the output depends on when the clock started:\n%s\n%s", a, b)
	}
	if !bytes.Equal(h.encode(h.machine, h.env.now), h.encode(h.twin, h.env.now+shift)) {
		return fmt.Errorf("the encoded state depends on when the clock started")
	}
	return nil
}

// chooseShadow makes a machine the shadow if it isn't equal to the Machine but has the same encoding.
func (h *harness) chooseShadow(sibling election.Machine) {
	alike := bytes.Equal(h.encode(sibling, h.env.now), h.encode(h.machine, h.env.now))
	if alike && fmt.Sprintf("%+v", sibling) != fmt.Sprintf("%+v", h.machine) {
		h.shadow = sibling
	}
}

// compareShadow compares the Machine with its shadow: states with the same
// encoding must behave alike from then on. Only the logical clocks may differ.
func (h *harness) compareShadow(in election.Input, out *election.Output) error {
	if h.shadow == nil {
		return nil
	}
	var outShadow election.Output
	h.shadow.Step(deepCopy(in), &outShadow)
	if a, b := withoutLamport(out), withoutLamport(&outShadow); a != b {
		return fmt.Errorf("states with equal encodings have different outputs:\n%s\n%s", a, b)
	}
	if !bytes.Equal(h.encode(h.machine, h.env.now), h.encode(h.shadow, h.env.now)) {
		return fmt.Errorf("states with equal encodings lead to different ones")
	}
	return nil
}

// withoutLamport formats the output without the logical clocks.
func withoutLamport(out *election.Output) string {
	sent := slices.Clone(out.Send)
	for i := range sent {
		sent[i].Lamport = 0
	}
	return fmt.Sprint(sent, out.Events)
}

// overwriteShared overwrites the slices that the Machine has returned or received.
func (h *harness) overwriteShared(in election.Input, out *election.Output) error {
	after, rows := h.encode(h.machine, h.env.now), h.machine.Rows(nil)
	for _, m := range append(out.Send, in.Message) {
		for i := range m.List {
			m.List[i] = 77
		}
	}
	for i := range rows {
		rows[i] = election.Row{}
	}
	if !bytes.Equal(h.encode(h.machine, h.env.now), after) {
		return fmt.Errorf("the state shares memory with a message or the rows")
	}
	return nil
}

func (h *harness) encode(m election.Machine, now election.Tick) []byte { return m.Encode(nil, now) }

// deepCopy returns a copy that shares no list.
func deepCopy(in election.Input) election.Input {
	in.Message.List = slices.Clone(in.Message.List)
	return in
}

// shifted returns the same input on a clock that started later.
func shifted(in election.Input) election.Input {
	in.Now += shift
	if hasMoment(in.Message.Kind) {
		in.Message.Hold.Sent += shift
	}
	return in
}

// hasMoment reports whether messages of this kind contain a moment.
func hasMoment(k election.Kind) bool {
	return k == election.Beat || k == election.Grant || k == election.Deny || k == election.Probe
}
