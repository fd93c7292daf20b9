package replay

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
)

// Transcript does the same as Check, and writes one line for each input, event and
// message: the time, the agent, and a description, as the simulator's transcripts do. In
// these, members are numbered by priority, the lowest first.
func Transcript(to io.Writer, paths ...string) error {
	t := &transcript{to: to, ids: map[string]election.ID{"": election.None}}
	c := &checker{coordinators: map[election.Term]string{}, watch: t.write}
	return c.check(paths)
}

type transcript struct {
	to io.Writer
	// began is the moment of the first step.
	began time.Duration
	// ids are the numbers of the agents. Those of a trace are different in each agent.
	ids map[string]election.ID
}

// write writes the last step of a replay.
func (t *transcript) write(r *Replay) {
	if t.began == 0 {
		t.began = r.at()
		for _, m := range slices.Backward(r.machine.Rows(nil)) { // the highest one comes first
			t.number(r.name(m.ID))
		}
	}
	s := &r.next
	if s.Kind == election.TimePassed && len(s.Send)+len(s.Events) == 0 {
		return
	}
	in := election.Input(s.input)
	in.Peer = t.id(r, in.Peer)
	if s.Message != nil {
		in.Message = t.message(r, s.Message)
	}
	t.line(r, "gets", in.Describe())
	for _, e := range s.Events {
		e.Peer = t.id(r, e.Peer)
		t.line(r, "finds", election.Event(e).Describe())
	}
	for _, m := range s.Send {
		t.line(r, "sends", t.message(r, &m).Describe())
	}
}

func (t *transcript) line(r *Replay, verb, text string) {
	_, _ = fmt.Fprintf(t.to, "%12.3f ms  %3d %s  %-5s  %s\n", float64(r.at()-t.began)/float64(time.Millisecond), t.number(r.Agent), r.Agent, verb, text)
}

func (t *transcript) number(name string) election.ID {
	id, known := t.ids[name]
	if !known {
		id = election.ID(len(t.ids))
		t.ids[name] = id
	}
	return id
}

func (t *transcript) id(r *Replay, id election.ID) election.ID { return t.number(r.name(id)) }

// message returns a message with the numbers of the transcript.
func (t *transcript) message(r *Replay, recorded *message) election.Message {
	m := election.Message(*recorded)
	m.From, m.To, m.Subject, m.Origin = t.id(r, m.From), t.id(r, m.To), t.id(r, m.Subject), t.id(r, m.Origin)
	m.List = nil
	for _, id := range recorded.List {
		m.List = append(m.List, t.id(r, id))
	}
	return m
}
