package replay

import (
	"errors"
	"io"
	"time"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// checker repeats the traces of all agents of a group in the order of time, and checks
// the invariants of the simulator: see docs/simulation.md.
type checker struct {
	replays []*Replay
	// statuses are those after the last step, and ended are the replays whose process is known to have ended.
	statuses []election.Status
	ended    []bool
	tokens   []election.Token
	// coordinators are those of the terms that have one.
	coordinators map[election.Term]string
	steps        int
}

// Check repeats the traces of a group's agents, which must have run on the same machine, and checks that there was at
// most one holder of the office at a time, that tokens increased, that no term decreased, and that each term had at
// most one coordinator. Without grants (Available), only tokens must differ and terms not decrease. It returns the
// numbers of steps and of tenures.
func Check(paths ...string) (steps, tenures int, err error) {
	c := &checker{coordinators: map[election.Term]string{}}
	err = c.check(paths)
	return c.steps, len(c.tokens), err
}

func (c *checker) check(paths []string) (err error) {
	defer func() {
		for _, r := range c.replays {
			err = errors.Join(err, r.Close())
		}
	}()
	for _, path := range paths {
		r, err := Open(path)
		if errors.Is(err, io.EOF) {
			continue // The process was killed before the first line was written.
		}
		if err != nil {
			return err
		}
		c.replays = append(c.replays, r)
	}
	c.statuses = make([]election.Status, len(c.replays))
	c.ended = make([]bool, len(c.replays))
	for {
		next, err := c.earliest()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = c.step(next)
		}
		if err != nil {
			return err
		}
	}
}

// earliest returns the replay whose next step is the earliest.
func (c *checker) earliest() (int, error) {
	next := -1
	for i, r := range c.replays {
		switch err := r.peek(); {
		case errors.Is(err, io.EOF):
		case err != nil:
			return 0, err
		case next < 0 || r.at() < c.replays[next].at():
			next = i
		}
	}
	if next < 0 {
		return 0, io.EOF
	}
	return next, nil
}

func (c *checker) step(i int) error {
	r := c.replays[i]
	now := r.at()
	if err := r.Step(); err != nil {
		return err
	}
	c.steps++
	c.recordEnds(r)
	before, status := c.statuses[i], r.next.Status
	c.statuses[i] = status
	if status.Term < before.Term && (r.Office.Mode != office.Available || status.Coordinator == before.Coordinator) {
		return r.errorf("the term went from %d to %d", before.Term, status.Term)
	}
	for _, e := range r.next.Events {
		if e.Kind == election.TenureStarted {
			if err := c.checkToken(r, e.Token); err != nil {
				return err
			}
		}
	}
	if r.Office.Mode == office.Available {
		return nil
	}
	if status.Token != 0 && status.Until > before.Until {
		if err := c.checkSoleHolder(i, now); err != nil {
			return err
		}
	}
	return c.checkCoordinator(r, status)
}

// recordEnds records which incarnations have ended, according to this step. Their tenures
// are then over in Majority, before their leases have expired.
func (c *checker) recordEnds(r *Replay) {
	for i, other := range c.replays {
		reported := r.next.Kind == election.Ended && other.Agent == r.name(r.next.Peer) && other.Office.Life == r.next.Life
		replaced := other.Agent == r.Agent && other.startedAt() < r.startedAt()
		if reported || replaced {
			c.ended[i] = true
		}
	}
}

func (c *checker) checkToken(r *Replay, token election.Token) error {
	for _, old := range c.tokens {
		if old == token || old > token && r.Office.Mode != office.Available {
			return r.errorf("%s has token %d after token %d", r.Agent, token, old)
		}
	}
	c.tokens = append(c.tokens, token)
	return nil
}

// checkSoleHolder checks that no other process holds the office when a tenure begins or is renewed.
func (c *checker) checkSoleHolder(i int, now time.Duration) error {
	for other, s := range c.statuses {
		r := c.replays[other]
		until := r.Origin + time.Duration(s.Until)
		over := c.ended[other] && r.Office.Mode == office.Majority
		if other != i && s.Token != 0 && now < until && !over {
			return c.replays[i].errorf("%s has tenure while %s has, for %s more", c.replays[i].Agent, r.Agent, until-now)
		}
	}
	return nil
}

// checkCoordinator checks that each term has one coordinator.
func (c *checker) checkCoordinator(r *Replay, status election.Status) error {
	if status.Coordinator == election.None {
		return nil
	}
	name := r.name(status.Coordinator)
	if other, known := c.coordinators[status.Term]; known && other != name {
		return r.errorf("in term %d %s follows %s, another agent %s", status.Term, r.Agent, name, other)
	}
	c.coordinators[status.Term] = name
	return nil
}

// startedAt returns the moment at which the recorded machine started.
func (r *Replay) startedAt() time.Duration {
	return r.Origin + time.Duration(r.Office.Start)
}

func (r *Replay) name(id election.ID) string {
	if int(id) < len(r.Names) {
		return r.Names[id]
	}
	return ""
}
