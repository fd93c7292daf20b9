package agents

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/conclave-dev/conclave/internal/testing/safety"
)

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
		return fmt.Errorf("%sthe operations on register %d are not linearizable:%s", safety.Violated, name, describe(operations))
	case porcupine.Unknown:
		return fmt.Errorf("cannot check the %d operations on register %d within the time limit", len(operations), name)
	default:
		return nil
	}
}

// describe lists writes, and reads that don't return the last written value.
func describe(operations []porcupine.Operation) string {
	operations = slices.SortedFunc(slices.Values(operations), func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
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
