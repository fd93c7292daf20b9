package fuzz_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/electiontest/fuzz"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// brokenMachine is a bully with one defect. A nil function has no defect.
type brokenMachine struct {
	election.Machine

	step   func(m *brokenMachine, in election.Input, out *election.Output)
	clone  func(m *brokenMachine) election.Machine
	encode func(m *brokenMachine, b []byte, now election.Tick) []byte
	rows   func(rows []election.Row) []election.Row
	status func(m *brokenMachine) election.Status

	steps    int
	retained []election.ID
}

func (m *brokenMachine) Step(in election.Input, out *election.Output) {
	m.steps++
	m.Machine.Step(in, out)
	if m.step != nil {
		m.step(m, in, out)
	}
}

func (m *brokenMachine) Clone() election.Machine {
	if m.clone != nil {
		return m.clone(m)
	}
	c := *m
	c.Machine = m.Machine.Clone()
	return &c
}

func (m *brokenMachine) Encode(b []byte, now election.Tick) []byte {
	b = m.Machine.Encode(b, now)
	if m.encode != nil {
		b = m.encode(m, b, now)
	}
	return b
}

func (m *brokenMachine) Rows(rows []election.Row) []election.Row {
	rows = m.Machine.Rows(rows)
	if m.rows != nil {
		rows = m.rows(rows)
	}
	return rows
}

func (m *brokenMachine) Status() election.Status {
	if m.status != nil {
		return m.status(m)
	}
	return m.Machine.Status()
}

// change returns a step that changes each message that the machine sends.
func change(how func(*election.Message)) func(*brokenMachine, election.Input, *election.Output) {
	return func(_ *brokenMachine, _ election.Input, out *election.Output) {
		for i := range out.Send {
			how(&out.Send[i])
		}
	}
}

// Each rule finds a machine that violates it. The keys are parts of the error messages.
func TestFuzzFindsBrokenMachines(t *testing.T) {
	calls := 0
	for words, wrong := range map[string]brokenMachine{
		"messages in one step": {step: func(_ *brokenMachine, _ election.Input, out *election.Output) {
			for range 6 {
				out.Send = append(out.Send, out.Send...)
			}
		}},
		"events in one step": {step: func(_ *brokenMachine, _ election.Input, out *election.Output) {
			for range 40 {
				out.Emit(election.Skipped, 1, 1)
			}
		}},
		"sent by":                 {step: change(func(m *election.Message) { m.From++ })},
		"was never a member":      {step: change(func(m *election.Message) { m.To += 100 })},
		"term is above the limit": {step: change(func(m *election.Message) { m.Term = election.MaxTerm + 1 })},
		"kind doesn't exist":      {step: change(func(m *election.Message) { m.Kind = election.NoKind })},
		"its logical clock is ":   {step: change(func(m *election.Message) { m.Lamport = 7 })},
		"a list of":               {step: change(func(m *election.Message) { m.List = make([]election.ID, 100) })},
		"clock isn't after":       {step: unorderedLamport},
		"goes back": {
			status: func(m *brokenMachine) election.Status { return election.Status{Term: election.Term(9 - m.steps%2)} },
		},
		"which doesn't exist": {
			status: func(*brokenMachine) election.Status { return election.Status{Term: election.MaxTerm + 1} },
		},
		"it has a token":            {status: func(*brokenMachine) election.Status { return election.Status{Token: 1} }},
		"rows for":                  {rows: func(rows []election.Row) []election.Row { return rows[1:] }},
		"not in order of rank":      {rows: reverseRows},
		"coordinators in one table": {rows: allCoordinators},
		"changes the original":      {clone: func(m *brokenMachine) election.Machine { return m }},
		"a copy has a different": {
			clone: func(m *brokenMachine) election.Machine { return m.Machine.Clone() }, encode: mark,
		},
		"different outputs": {step: func(_ *brokenMachine, _ election.Input, out *election.Output) {
			calls++
			out.Emit(election.Skipped, election.Term(calls), 1)
		}},
		"when the clock started": {encode: func(_ *brokenMachine, b []byte, now election.Tick) []byte {
			return election.AppendNumber(b, uint64(now))
		}},
		"the output depends": {step: func(_ *brokenMachine, in election.Input, out *election.Output) {
			out.Emit(election.Skipped, election.Term(in.Now), 1)
		}},
		"have different outputs": {step: hiddenState},
		"isn't eligible":         {step: takeOfficeWhenIneligible},
		"shares memory with": {
			step:   retainList,
			encode: func(m *brokenMachine, b []byte, _ election.Tick) []byte { return election.IDs(m.retained).Encode(b) },
		},
		"refused when its clock": {},
	} {
		t.Run(words, func(t *testing.T) {
			for _, seed := range fuzz.Seeds() {
				err := fuzz.Run(seed, func(c election.Config, start election.Tick) (election.Machine, error) {
					if strings.HasPrefix(words, "refused") && start > 0 {
						return nil, errors.New("too late")
					}
					m, err := catalog.All()[0].New(c)
					b := wrong
					b.Machine = m
					return &b, err
				})
				if err != nil && strings.Contains(err.Error(), words) {
					return
				}
			}
			t.Fatal("got no error, want one")
		})
	}
}

func unorderedLamport(_ *brokenMachine, in election.Input, out *election.Output) {
	if in.Kind == election.Receive && in.Message.Lamport > 0 {
		for i := range out.Send {
			out.Send[i].Lamport = in.Message.Lamport
		}
	}
}

func reverseRows(rows []election.Row) []election.Row {
	last := len(rows) - 1
	rows[0], rows[last] = rows[last], rows[0]
	return rows
}

func allCoordinators(rows []election.Row) []election.Row {
	for i := range rows {
		rows[i].Status = election.Coordinating
	}
	return rows
}

// hiddenState remembers a part of an input that its encoding doesn't contain.
func hiddenState(m *brokenMachine, in election.Input, out *election.Output) {
	if len(m.retained) > 0 {
		out.Emit(election.Skipped, 1, m.retained[0])
	}
	m.retained = []election.ID{in.Peer}
}

func takeOfficeWhenIneligible(_ *brokenMachine, in election.Input, out *election.Output) {
	if in.Kind == election.BecomeIneligible {
		out.Emit(election.TenureStarted, 1, 1)
	}
}

func mark(_ *brokenMachine, b []byte, _ election.Tick) []byte { return append(b, 1) }

func retainList(m *brokenMachine, in election.Input, _ *election.Output) {
	if len(in.Message.List) > 0 {
		m.retained = in.Message.List
	}
}

// The machine on which the broken ones are based passes.
func TestFuzzAcceptsCorrectMachine(t *testing.T) {
	for _, seed := range fuzz.Seeds() {
		err := fuzz.Run(seed, func(c election.Config, _ election.Tick) (election.Machine, error) {
			m, err := catalog.All()[0].New(c)
			return &brokenMachine{Machine: m}, err
		})
		must.Succeed(t, err)
	}
}
