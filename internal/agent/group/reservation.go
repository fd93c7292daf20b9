package group

import (
	"fmt"
	"maps"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
)

// storeRetry is the time between two attempts to store a reservation.
const storeRetry = time.Second

// reservation has what the disk remembers for this process, and what is being stored in the background: no step waits
// for the disk.
type reservation struct {
	// met are the identities of the peers under the present list, if it is from a file, and unsaved is set if the disk
	// lacks some.
	met     map[string]election.Identity
	unsaved bool
	// storing: a goroutine stores a reservation. failure is why its last attempt failed, and problem is that no terms
	// are left because of it, or "".
	storing bool
	failure error
	problem string
}

// reserve stores what the machine wants to be reserved, and the identities of the peers. It is called after each input.
// A reservation suffices for many elections, so the disk has much time.
func (g *Group) reserve() {
	r, wanted := &g.reservation, g.machine.Wanted()
	g.updateReservationProblem(wanted)
	if r.storing || wanted <= g.machine.Reserved() && !r.unsaved {
		return
	}
	r.storing, r.unsaved = true, false
	go g.store(wanted, g.list.Version, maps.Clone(r.met))
}

// store retries until a reservation is on the disk, or the group was left.
func (g *Group) store(term election.Term, version uint32, met map[string]election.Identity) {
	for {
		err := g.cfg.Reserve(term, version, met)
		if err == nil {
			break
		}
		if g.enqueue(func() { g.reservationFailed(err) }) != nil {
			return
		}
		select {
		case <-time.After(storeRetry):
		case <-g.quit:
			return
		}
	}
	_ = g.enqueue(func() { // A group that was left needs no more terms.
		g.reservation.storing, g.reservation.failure = false, nil
		g.step(election.Input{Kind: election.Reserved, Term: term})
	})
}

func (g *Group) reservationFailed(err error) {
	if g.reservation.failure == nil {
		g.cfg.Log.Error("cannot reserve terms; retrying", "error", err)
	}
	g.reservation.failure = err
}

// updateReservationProblem reports that no terms are left, so that this process can't grant or claim the office. Before
// that, a disk that fails affects nothing.
func (g *Group) updateReservationProblem(wanted election.Term) {
	problem := ""
	if failure := g.reservation.failure; failure != nil && wanted >= g.machine.Reserved()+election.Block {
		problem = fmt.Sprintf("group %s: cannot reserve terms: %s", g.cfg.Group.Name, failure)
	}
	if problem != g.reservation.problem {
		g.reservation.problem = problem
		g.updateProblems()
	}
}
