package groupstatus

import (
	"fmt"
	"testing"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// newLargestGroup returns a group of the maximum size, with all agents connected.
func newLargestGroup() *harness {
	s := newHarness(1)
	s.names, s.List.Members = nil, nil
	for i := range v1.MaxMembers {
		name := fmt.Sprint("ledger-", i)
		s.names = append(s.names, name)
		s.List.Members = append(s.List.Members, v1.Member{Pod: name, Priority: int32(i + 1)})
		s.createPod(name)
	}
	for _, name := range s.names {
		s.connect(name)
	}
	return s
}

func BenchmarkEvaluate(b *testing.B) {
	b.Run("elected", func(b *testing.B) {
		s := newLargestGroup()
		s.elect(s.names[999])
		s.evaluate()
		for b.Loop() {
			Evaluate(s.Facts)
		}
	})
	// While there is no coordinator, all tables count.
	b.Run("electing", func(b *testing.B) {
		s := newLargestGroup()
		for b.Loop() {
			Evaluate(s.Facts)
		}
	})
	b.Run("adopting", func(b *testing.B) {
		s := newLargestGroup()
		s.elect(s.names[999])
		s.List = &v1.MemberList{
			Version: 2, State: v1.ListAdopting, Members: s.List.Members[:1], Previous: &v1.PreviousList{Members: s.List.Members},
		}
		for b.Loop() {
			Evaluate(s.Facts)
		}
	})
}
