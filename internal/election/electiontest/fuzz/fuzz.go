// Package fuzz puts a Machine through anything at all: inputs of every kind
// from anybody, decoded from bytes, for fuzz targets. It says what a Machine
// must never do, whatever its peers say:
//
//   - panic;
//   - send without bound, or tell without bound, in one step;
//   - send in somebody else's name, to nobody, or in a term that doesn't exist;
//   - take the office when it may not stand;
//   - go back to an older term, or to an older moment of its logical clock;
//   - be changed by its copy, by who reads its output, or by who gave it input;
//   - answer differently, or be encoded differently, in a state that is the same;
//   - be encoded alike in states that don't behave alike;
//   - depend on where its clock started.
//
// Time only goes forward, and logical clocks are far from overflowing: whoever
// runs a Machine sees to both.
package fuzz

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// Maker makes the Machine under test. It starts at the moment start.
type Maker func(c election.Config, start election.Tick) (election.Machine, error)

// MaxInputs is how many inputs an ordeal has at most.
const MaxInputs = 256

// shift is how far apart the clocks are of the two machines that must behave alike.
const shift election.Tick = 1_000_003

// trial is one Machine that goes through an ordeal, its twin, whose clock started
// later, and its shadow, which came to a state that is encoded alike by another
// input.
type harness struct {
	source  source
	env     environment
	machine election.Machine
	twin    election.Machine
	shadow  election.Machine
	lamport uint64
	// withdrawn is what the Machine was last told of its application.
	withdrawn bool
}

// Run makes a Machine and puts it through what data says. An error is a rule
// that was broken, and the input that broke it.
func Run(data []byte, maker Maker) error {
	t := harness{source: source{data: data}}
	c := t.env.found(&t.source)
	var err error
	if t.machine, err = maker(c, 0); err != nil {
		return nil //nolint:nilerr // a config that was refused can't do harm
	}
	if t.twin, err = maker(c, shift); err != nil {
		return fmt.Errorf("refused when its clock starts at %d: %w", shift, err)
	}
	for range MaxInputs {
		if t.source.empty() {
			return nil
		}
		in := t.env.input(&t.source, t.machine.Deadline())
		if err := t.step(in); err != nil {
			return fmt.Errorf("%s (%+v): %w", in.Describe(), in, err)
		}
	}
	return nil
}

// Seeds are inputs to start from: nothing in particular, always the same.
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

// step lets the Machine, its copy and its twin take the same input.
func (t *harness) step(in election.Input) error {
	before := t.encode(t.machine, t.env.now)
	term := t.machine.Status().Term
	copied := t.machine.Clone()
	if !bytes.Equal(t.encode(copied, t.env.now), before) {
		return fmt.Errorf("a copy is encoded differently")
	}
	var out, outCopy, outTwin election.Output
	copied.Step(deep(in), &outCopy)
	if !bytes.Equal(t.encode(t.machine, t.env.now), before) {
		return fmt.Errorf("stepping a copy changes the original")
	}
	sibling := t.machine.Clone()
	sibling.Step(t.env.other(&t.source, deep(in)), new(election.Output))
	idle := t.machine.Clone()
	given := deep(in)
	t.machine.Step(given, &out)
	if !bytes.Equal(t.encode(idle, t.env.now), before) {
		return fmt.Errorf("stepping the original changes its copy")
	}
	if err := t.alike(copied, &out, &outCopy); err != nil {
		return err
	}
	t.twin.Step(late(deep(in)), &outTwin)
	if err := t.judge(in, &out, term); err != nil {
		return err
	}
	if err := t.compareTwin(&out, &outTwin); err != nil {
		return err
	}
	if err := t.compareShadow(in, &out); err != nil {
		return err
	}
	t.cast(sibling)
	return t.scribble(given, &out)
}

// alike compares the Machine with its copy after the same input.
func (t *harness) alike(copied election.Machine, out, outCopy *election.Output) error {
	switch {
	case fmt.Sprint(*out) != fmt.Sprint(*outCopy):
		return fmt.Errorf("equal inputs give different outputs:\n%+v\n%+v", *out, *outCopy)
	case !bytes.Equal(t.encode(t.machine, t.env.now), t.encode(copied, t.env.now)):
		return fmt.Errorf("equal inputs give different states")
	case t.machine.Status() != copied.Status() || t.machine.Deadline() != copied.Deadline():
		return fmt.Errorf("equal inputs give a different status or deadline")
	case !slices.Equal(t.machine.Rows(nil), copied.Rows(nil)):
		return fmt.Errorf("equal inputs give different tables")
	}
	return nil
}

// compareTwin: nothing may depend on when a process's clock started.
func (t *harness) compareTwin(out, outTwin *election.Output) error {
	for i := range outTwin.Send {
		if m := &outTwin.Send[i]; timed(m.Kind) {
			m.Hold.Sent -= shift
		}
	}
	if a, b := fmt.Sprint(*out), fmt.Sprint(*outTwin); a != b {
		return fmt.Errorf("the output depends on when the clock started:\n%s\n%s", a, b)
	}
	if !bytes.Equal(t.encode(t.machine, t.env.now), t.encode(t.twin, t.env.now+shift)) {
		return fmt.Errorf("the encoded state depends on when the clock started")
	}
	return nil
}

// cast takes a machine for the shadow, if it is encoded alike but isn't the same.
func (t *harness) cast(sibling election.Machine) {
	alike := bytes.Equal(t.encode(sibling, t.env.now), t.encode(t.machine, t.env.now))
	if alike && fmt.Sprintf("%+v", sibling) != fmt.Sprintf("%+v", t.machine) {
		t.shadow = sibling
	}
}

// compareShadow: what is encoded alike must do the same from then on. Only the
// logical clocks may differ.
func (t *harness) compareShadow(in election.Input, out *election.Output) error {
	if t.shadow == nil {
		return nil
	}
	var outShadow election.Output
	t.shadow.Step(deep(in), &outShadow)
	if a, b := timeless(out), timeless(&outShadow); a != b {
		return fmt.Errorf("states that are encoded alike answer differently:\n%s\n%s", a, b)
	}
	if !bytes.Equal(t.encode(t.machine, t.env.now), t.encode(t.shadow, t.env.now)) {
		return fmt.Errorf("states that are encoded alike go on to different ones")
	}
	return nil
}

// timeless is the output without the logical clocks.
func timeless(out *election.Output) string {
	sent := slices.Clone(out.Send)
	for i := range sent {
		sent[i].Lamport = 0
	}
	return fmt.Sprint(sent, out.Events)
}

// scribble writes over what the Machine has given away or was given.
func (t *harness) scribble(in election.Input, out *election.Output) error {
	after, rows := t.encode(t.machine, t.env.now), t.machine.Rows(nil)
	for _, m := range append(out.Send, in.Message) {
		for i := range m.List {
			m.List[i] = 77
		}
	}
	for i := range rows {
		rows[i] = election.Row{}
	}
	if !bytes.Equal(t.encode(t.machine, t.env.now), after) {
		return fmt.Errorf("the state shares memory with a message or the rows")
	}
	return nil
}

func (t *harness) encode(m election.Machine, now election.Tick) []byte { return m.Encode(nil, now) }

// deep is a copy that shares no list.
func deep(in election.Input) election.Input {
	in.Message.List = slices.Clone(in.Message.List)
	return in
}

// late is the same input on a clock that started later.
func late(in election.Input) election.Input {
	in.Now += shift
	if timed(in.Message.Kind) {
		in.Message.Hold.Sent += shift
	}
	return in
}

// timed reports whether messages of this kind carry a moment.
func timed(k election.Kind) bool {
	return k == election.Beat || k == election.Grant || k == election.Deny
}
