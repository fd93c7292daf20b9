package sim

import (
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
)

// drawMemory draws whether a process that restarts remembers its grants. In its first pod, or a new
// one, it has none. A process in another schedule, or after another restart, has lost its memory.
func (s *simulation) drawMemory(p *process) {
	random := rng(uint64(s.queue.now) ^ uint64(p.incarnation)<<32) // The other random numbers of the schedule remain the same.
	random.next()
	p.remembersGrants = s.remembers && s.usesGrants() && p.incarnation > 0 && !p.podGone && random.percent(60)
}

// remembered returns what a process that starts remembers, or nil. Its machine is still that
// of the previous incarnation.
func (s *simulation) remembered(p *process) *grants.Memory {
	if !p.remembersGrants {
		return nil
	}
	memory := p.machine.Memory()
	return &memory
}

func (s *simulation) reportRestart(id election.ID) {
	if s.processes[id].remembersGrants {
		s.reportFault(outageRestart, id, "restarts and remembers its grants")
	} else {
		s.reportFault(outageRestart, id, "restarts without its memory")
	}
}
