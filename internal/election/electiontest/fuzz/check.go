package fuzz

import (
	"fmt"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// checkStep checks the result of one step of the Machine.
func (h *harness) checkStep(in election.Input, out *election.Output, before election.Status) error {
	n := len(h.env.members)
	status := h.machine.Status()
	switch {
	case len(out.Send) > 4*n:
		return fmt.Errorf("%d messages in one step, among %d", len(out.Send), n)
	case len(out.Events) > 4*n+4:
		return fmt.Errorf("%d events in one step, among %d", len(out.Events), n)
	case status.Term < before.Term && status.Coordinator == before.Coordinator:
		return fmt.Errorf("its term goes back from %d to %d", before.Term, status.Term)
	case status.Term > election.MaxTerm:
		return fmt.Errorf("its term is %d, which doesn't exist", status.Term)
	case status.Token != 0 && status.Coordinator != h.env.self:
		return fmt.Errorf("it has a token, but its coordinator is %d", status.Coordinator)
	}
	switch in.Kind {
	case election.BecomeIneligible, election.BecomeEligible:
		h.ineligible = in.Kind == election.BecomeIneligible
	default:
	}
	if err := h.checkTenure(out); err != nil {
		return err
	}
	refused := slices.ContainsFunc(out.Events, func(e election.Event) bool { return e.Kind == election.Refused })
	for i := range out.Send {
		if err := h.checkMessage(&in, refused, &out.Send[i]); err != nil {
			return fmt.Errorf("%s: %w", out.Send[i].Describe(), err)
		}
		h.env.sent = append(h.env.sent, out.Send[i])
		h.env.sent[len(h.env.sent)-1].List = slices.Clone(out.Send[i].List)
	}
	h.env.sent = h.env.sent[max(0, len(h.env.sent)-8):]
	return h.checkRows()
}

func (h *harness) checkMessage(in *election.Input, refused bool, m *election.Message) error {
	if m.Lamport <= h.lamport {
		return fmt.Errorf("its logical clock is %d after %d", m.Lamport, h.lamport)
	}
	h.lamport = m.Lamport
	switch {
	case m.From != h.env.self:
		return fmt.Errorf("sent by %d", h.env.self)
	case !h.env.members.Has(m.To):
		return fmt.Errorf("sent to a process that was never a member")
	case m.Term > election.MaxTerm:
		return fmt.Errorf("its term is above the limit")
	case m.Kind == election.NoKind || m.Kind > election.Probe:
		return fmt.Errorf("its kind doesn't exist")
	case len(m.List) > max(len(h.env.members)+1, len(in.Message.List)): // all others, and two separators
		return fmt.Errorf("a list of %d, among %d", len(m.List), len(h.env.members))
	case in.Kind == election.Receive && !refused && in.Message.Lamport >= m.Lamport:
		return fmt.Errorf("its logical clock isn't after %d, that of the received message", in.Message.Lamport)
	}
	return nil
}

// checkTenure checks that only an eligible process acquires the office.
func (h *harness) checkTenure(out *election.Output) error {
	acquires := slices.ContainsFunc(out.Events, func(e election.Event) bool { return e.Kind == election.TenureStarted })
	if acquires && (h.ineligible || h.env.roster.Priority(h.env.self) == 0) {
		return fmt.Errorf("it acquires the office and isn't eligible")
	}
	return nil
}

// checkRows checks that there is one row for each member, and at most one coordinator.
func (h *harness) checkRows() error {
	rows := h.machine.Rows(nil)
	if len(rows) != h.env.roster.Len() {
		return fmt.Errorf("%d rows for %d members", len(rows), h.env.roster.Len())
	}
	coordinators := 0
	for i, row := range rows {
		if row.ID != h.env.roster.Ranked()[i].ID {
			return fmt.Errorf("row %d is that of %d, not in order of rank", i, row.ID)
		}
		if row.Status == election.Coordinating {
			coordinators++
		}
	}
	if coordinators > 1 {
		return fmt.Errorf("%d coordinators in one table", coordinators)
	}
	return nil
}
