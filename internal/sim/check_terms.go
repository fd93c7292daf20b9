package sim

import (
	"fmt"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// checkVote checks what a process has granted and claimed in its last step: a process that is forgetful has done
// neither, and no other one has granted or claimed a term above its reservation.
func (s *simulation) checkVote(id election.ID) {
	p := &s.processes[id]
	forgets := s.forgetful(id)
	if p.machine.Forgetful() != forgets {
		s.checker.fail("forgetful", fmt.Sprintf("process %d is forgetful: got %t, want %t", id, !forgets, forgets))
	}
	for i := range s.out.Send {
		switch m := &s.out.Send[i]; {
		case m.Kind == election.Grant && s.usesGrants() && forgets:
			s.checker.fail("forgetful", fmt.Sprintf("process %d grants term %d, and is forgetful", id, m.Term))
		case m.Kind == election.Beat && !m.Hold.Held:
			s.checkClaim(id, m.Term)
		}
	}
	if !s.usesGrants() {
		return
	}
	latest := p.machine.Memory()
	if latest.Term != p.granted && !latest.Renewed && latest.Term > p.disk.reserved {
		s.checker.fail("reservation",
			fmt.Sprintf("process %d grants term %d, and has reserved %d", id, latest.Term, p.disk.reserved))
	}
	p.granted = latest.Term
}

// checkClaim checks a term in which a process claims the office, or acquires it.
func (s *simulation) checkClaim(id election.ID, term election.Term) {
	p := &s.processes[id]
	switch {
	case s.forgetful(id):
		s.checker.fail("forgetful", fmt.Sprintf("process %d claims term %d, and is forgetful", id, term))
	case term.Version() != p.roster.Version || term == election.FirstTerm(term.Version()):
		s.checker.fail("claims", fmt.Sprintf("process %d claims term %d with list %d", id, term, p.roster.Version))
	case s.mode == office.Available && term > p.disk.reserved:
		s.checker.fail("reservation",
			fmt.Sprintf("process %d claims term %d, and has reserved %d", id, term, p.disk.reserved))
	}
}

// checkBinding checks that a change within a version of the list names no other disk of a member than before.
func (s *simulation) checkBinding(before, after []memberlist.Member) {
	for i, m := range before {
		if next := after[i]; next.Name != m.Name || m.Identity != "" && next.Identity != m.Identity {
			s.checker.fail("identity",
				fmt.Sprintf("the list named disk %q of process %s, and names %q now", m.Identity, m.Name, next.Identity))
		}
	}
}
