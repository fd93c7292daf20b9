package transcript

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/journal"
)

type part struct {
	journal *journal.Journal
	// steps are those of the election, as far as this agent knew, and before and after them
	// those until the neighboring elections. It may have answered an agent that had lost the
	// coordinator earlier, or received a message late. Others have nothing to do with the
	// election: see trim.
	steps []*journal.Step
	begin int
	// former and formerTerm are the coordinator that the agent knew before, "" if it knew
	// none.
	former     string
	formerTerm uint64
	// coordinator and term are the result, "" if the agent knows none yet.
	coordinator string
	term        uint64
	// settled is the step in which the agent recognized the coordinator, or nil.
	settled *journal.Step
	// lost is the step in which the agent lost the former coordinator, or nil.
	lost  *journal.Step
	first bool
}

func (p *part) started() bool { return p.first && p.journal.Omitted == 0 }

// truncated reports whether older steps of the part may have been replaced.
func (p *part) truncated() bool { return p.first && p.journal.Omitted > 0 }

// cut divides a journal into elections. The steps between two of them are in both parts.
func cut(j *journal.Journal) []*part {
	var parts []*part
	p, between := &part{journal: j, first: true}, 0
	for i := range j.Steps {
		s := &j.Steps[i]
		if p.settled != nil && p.ends(s) {
			parts = append(parts, p)
			p = &part{journal: j, former: p.coordinator, formerTerm: p.term, steps: slices.Clone(p.steps[between:]), begin: len(p.steps) - between}
		}
		p.steps = append(p.steps, s)
		if p.lost == nil && p.settled == nil && loses(s, p.former) {
			p.lost = s
		}
		if e := recognition(s); e != nil && p.settled == nil {
			p.coordinator, p.term, p.settled = e.Peer, e.Term, s
			between = len(p.steps)
		}
	}
	if len(p.steps) > 0 {
		parts = append(parts, p)
	}
	return parts
}

// ends reports whether a step belongs to the next election: the agent loses its coordinator,
// or recognizes another one.
func (p *part) ends(s *journal.Step) bool {
	e := recognition(s)
	return loses(s, p.coordinator) || e != nil && (e.Term != p.term || e.Peer != p.coordinator)
}

func (p *part) during() []*journal.Step {
	const shortly = 10 * time.Second
	steps := p.steps[p.begin:]
	if p.settled == nil {
		return steps
	}
	end := p.settled.At.Add(shortly)
	if i := slices.IndexFunc(steps, func(s *journal.Step) bool { return s.At.After(end) }); i >= 0 {
		return steps[:i]
	}
	return steps
}

// recognition returns the event by which the agent recognizes a coordinator, or nil.
func recognition(s *journal.Step) *journal.Event {
	for i := range s.Events {
		switch e := &s.Events[i]; eventKinds[e.Kind] {
		case election.Recognized, election.TenureStarted:
			return e
		default:
		}
	}
	return nil
}

// loses reports whether the agent of a step loses this coordinator, which may be itself, or
// learns that it is going to.
func loses(s *journal.Step, coordinator string) bool {
	if coordinator == "" {
		return false
	}
	if inputKinds[s.Input] == election.Ended && s.Peer == coordinator {
		return true
	}
	if m := s.Message; m != nil && messageKinds[m.Kind] == election.Resigned && m.From == coordinator {
		return true
	}
	return slices.ContainsFunc(s.Events, func(e journal.Event) bool {
		switch eventKinds[e.Kind] {
		case election.MarkedCrashed:
			return e.Peer == coordinator
		case election.TenureLost, election.StopRequested, election.OfficeResigned:
			return true
		default:
			return false
		}
	})
}

// The kinds by their names.
var (
	inputKinds   = byName[election.InputKind]()
	eventKinds   = byName[election.EventKind]()
	messageKinds = byName[election.Kind]()
)

type kind interface {
	~uint8
	String() string
}

func byName[K kind]() map[string]K {
	kinds := map[string]K{}
	unknown := K(255).String()
	for k := range K(255) {
		if name := k.String(); name != unknown {
			kinds[name] = k
		}
	}
	return kinds
}

// Check returns an error if a journal contains something that this program doesn't know: then
// its agent is newer. It also refuses a journal that no agent of ours writes.
func Check(j *journal.Journal) error {
	for i := range j.Steps {
		s := &j.Steps[i]
		if _, known := inputKinds[s.Input]; !known {
			return newerError(s.Input)
		}
		if inputKinds[s.Input] == election.Receive && s.Message == nil {
			return errors.New("its journal is malformed: a message was received, but is missing")
		}
		for _, e := range s.Events {
			if _, known := eventKinds[e.Kind]; !known {
				return newerError(e.Kind)
			}
		}
		for m := range s.Messages() {
			if _, known := messageKinds[m.Kind]; !known {
				return newerError(m.Kind)
			}
		}
	}
	return nil
}

func newerError(kind string) error {
	return fmt.Errorf("its agent is newer than this plugin, which doesn't know %.40q: update the plugin", kind)
}
