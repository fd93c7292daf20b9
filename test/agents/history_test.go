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
)

// request is what a client asks for: the value of a register, or if it writes,
// that it be this one.
type request struct {
	register int
	write    bool
	value    int
	// at is the agent whose application was asked.
	at string
}

// history is what clients asked for and were answered, register by register.
type history struct {
	begun time.Time

	mutex      sync.Mutex
	operations map[int][]porcupine.Operation
	reads      int
}

func newHistory() *history {
	return &history{begun: time.Now(), operations: map[int][]porcupine.Operation{}}
}

func (h *history) now() int64 { return int64(time.Since(h.begun)) }

// never is when something ends of which nobody knows whether it happened.
const never = int64(1) << 62

func (h *history) add(asked request, value int, call, answered int64) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.operations[asked.register] = append(h.operations[asked.register],
		porcupine.Operation{Input: asked, Output: value, Call: call, Return: answered})
	if !asked.write {
		h.reads++
	}
}

func (h *history) readCount() int {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.reads
}

// register is what clients may believe each register to be, if all is well.
var register = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(state, input, output any) (bool, any) {
		asked, _ := input.(request)
		if asked.write {
			return true, asked.value
		}
		return output == state, state
	},
}

// verify returns the first register whose operations can't have happened one
// after the other, or nil.
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
	switch porcupine.CheckOperationsTimeout(register, operations, limit) {
	case porcupine.Illegal:
		return fmt.Errorf("the operations on register %d are not linearizable:%s", name, describe(operations))
	case porcupine.Unknown:
		return fmt.Errorf("the %d operations on register %d were too much for the checker", len(operations), name)
	default:
		return nil
	}
}

// describe lists writes, and reads that don't return what was written last.
func describe(operations []porcupine.Operation) string {
	operations = slices.SortedFunc(slices.Values(operations), func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var lines strings.Builder
	var last any = 0
	for _, operation := range operations {
		asked, _ := operation.Input.(request)
		if !asked.write && operation.Output == last {
			continue
		}
		what := fmt.Sprintf("reads %d", operation.Output)
		if asked.write {
			what, last = fmt.Sprintf("writes %d", asked.value), operation.Output
		}
		until := "never"
		if operation.Return != never {
			until = time.Duration(operation.Return).String()
		}
		fmt.Fprintf(&lines, "\n  %s to %s: at %s, %s", time.Duration(operation.Call), until, asked.at, what)
	}
	return lines.String()
}
