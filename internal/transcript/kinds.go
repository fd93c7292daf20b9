package transcript

import (
	"errors"
	"fmt"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/journal"
)

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
