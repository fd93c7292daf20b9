package agents

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/conclave-dev/conclave/internal/testing/safety"
)

// errFenced means that the storage has received a higher token.
var errFenced = errors.New("the token is lower than the highest token of the storage")

// storage is the resource that a coordinator writes: registers that reject tokens lower than the highest one received.
type storage struct {
	mutex  sync.Mutex
	values map[int]int
	token  uint64
	// accepted are the accepted tokens with the client that used them, without consecutive duplicates.
	accepted []acceptedToken
	writes   int
}

type acceptedToken struct {
	token  uint64
	client string
}

func newStorage() *storage { return &storage{values: map[int]int{}} }

// load returns a copy of the registers. From then on, the storage rejects lower tokens.
func (s *storage) load(token uint64, client string) (map[int]int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if err := s.checkToken(token, client); err != nil {
		return nil, err
	}
	return maps.Clone(s.values), nil
}

func (s *storage) write(token uint64, client string, register, value int) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if err := s.checkToken(token, client); err != nil {
		return err
	}
	s.values[register] = value
	s.writes++
	return nil
}

func (s *storage) checkToken(token uint64, client string) error {
	if token < s.token {
		return errFenced
	}
	s.token = token
	next := acceptedToken{token, client}
	if len(s.accepted) == 0 || s.accepted[len(s.accepted)-1] != next {
		s.accepted = append(s.accepted, next)
	}
	return nil
}

// verify checks that tokens never decreased, and that each was used by one client only.
func (s *storage) verify() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for i := 1; i < len(s.accepted); i++ {
		former, next := s.accepted[i-1], s.accepted[i]
		if next.token < former.token {
			return fmt.Errorf("the storage accepted token %d of %s after %d of %s", next.token, next.client,
				former.token, former.client)
		}
		if next.token == former.token {
			return fmt.Errorf("both %s and %s used token %d", former.client, next.client, next.token)
		}
	}
	return nil
}

func (s *storage) counts() (tenures, writes int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.accepted), s.writes
}

// request is a request of a client: to read a register, or to write a value.
type request struct {
	register int
	write    bool
	value    int
	// at is the agent whose application received the request.
	at string
}

// history has the requests and responses for each register.
type history struct {
	start time.Time

	mutex      sync.Mutex
	operations map[int][]porcupine.Operation
	reads      int
}

func newHistory() *history {
	return &history{start: time.Now(), operations: map[int][]porcupine.Operation{}}
}

func (h *history) now() int64 { return int64(time.Since(h.start)) }

// noResponse is the response time of a request whose effect is unknown.
const noResponse = int64(1) << 62

func (h *history) add(r request, value int, call, returned int64) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.operations[r.register] = append(h.operations[r.register],
		porcupine.Operation{Input: r, Output: value, Call: call, Return: returned})
	if !r.write {
		h.reads++
	}
}

func (h *history) readCount() int {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.reads
}

// registerModel is the sequential specification of a register.
var registerModel = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(state, input, output any) (bool, any) {
		r, _ := input.(request)
		if r.write {
			return true, r.value
		}
		return output == state, state
	},
}

// verify returns an error for the first register whose operations aren't linearizable.
func (h *history) verify() error {
	h.mutex.Lock()
	registers := slices.Sorted(maps.Keys(h.operations))
	h.mutex.Unlock()
	for _, name := range registers {
		if err := h.verifyRegister(name); err != nil {
			return err
		}
	}
	return nil
}

func (h *history) verifyRegister(name int) error {
	const limit = time.Minute
	h.mutex.Lock()
	operations := slices.Clone(h.operations[name])
	h.mutex.Unlock()
	switch porcupine.CheckOperationsTimeout(registerModel, operations, limit) {
	case porcupine.Illegal:
		return fmt.Errorf("%sthe operations on register %d are not linearizable:%s", safety.Violated,
			name, describe(operations))
	case porcupine.Unknown:
		return fmt.Errorf("cannot check the %d operations on register %d within the time limit", len(operations), name)
	default:
		return nil
	}
}

// describe lists writes, and reads that don't return the last written value.
func describe(operations []porcupine.Operation) string {
	operations = slices.SortedFunc(slices.Values(operations),
		func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var lines strings.Builder
	var last any = 0
	for _, operation := range operations {
		r, _ := operation.Input.(request)
		if !r.write && operation.Output == last {
			continue
		}
		what := fmt.Sprintf("reads %d", operation.Output)
		if r.write {
			what, last = fmt.Sprintf("writes %d", r.value), operation.Output
		}
		until := "no response"
		if operation.Return != noResponse {
			until = time.Duration(operation.Return).String()
		}
		fmt.Fprintf(&lines, "\n  %s to %s: at %s, %s", time.Duration(operation.Call), until, r.at, what)
	}
	return lines.String()
}

// checkTraces kills all agents, and repeats the elections that they have recorded.
func (g *testGroup) checkTraces() {
	g.t.Helper()
	g.check(g.Kill())
	allSteps, allTenures := 0, 0
	for _, group := range g.Groups() {
		steps, tenures, err := g.CheckTraces(group)
		if err != nil {
			g.t.Errorf("trace of group %s: %v", group, err)
		} else if tenures == 0 {
			g.t.Errorf("trace of group %s: got no tenure in %d steps", group, steps)
		}
		allSteps, allTenures = allSteps+steps, allTenures+tenures
	}
	g.t.Logf("repeated %d steps with %d tenures", allSteps, allTenures)
}
