package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/journal"
)

// maxJournal is more than a journal with long names.
const maxJournal = 1 << 20

// Journal reads the journal of a pod's agent about a group, over a connection of its own.
func (s *Streams) Journal(ctx context.Context, pod types.NamespacedName, group string) (*journal.Journal, error) {
	s.mu.RLock()
	stream := s.streams[pod]
	connected := stream != nil && stream.connection.Connected
	s.mu.RUnlock()
	if !connected {
		return nil, errors.New("its agent isn't connected")
	}
	resp, err := s.do(ctx, stream.agent, request{method: http.MethodGet, path: control.GroupPath(group) + journal.Path})
	if err != nil {
		return nil, journalError(err)
	}
	defer resp.close()
	if !resp.groups[group] {
		return nil, errors.New("its certificate isn't for this group")
	}
	text, err := io.ReadAll(io.LimitReader(resp.body, maxJournal+1))
	if err != nil {
		return nil, journalError(err)
	}
	if len(text) > maxJournal {
		return nil, fmt.Errorf("its journal must have at most %d bytes", maxJournal)
	}
	j := &journal.Journal{}
	if err := json.Unmarshal(text, j); err != nil {
		return nil, fmt.Errorf("cannot parse its journal: %w", err)
	}
	return j, nil
}

// journalError explains the response of an agent that is too old to have the path.
func journalError(err error) error {
	var rejected *statusError
	if errors.As(err, &rejected) && rejected.code == http.StatusNotFound {
		return fmt.Errorf("its agent doesn't give its journal to the operator: %s", rejected.reason)
	}
	return errors.New(describe(err))
}
