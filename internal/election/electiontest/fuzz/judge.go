package fuzz

import (
	"fmt"
	"slices"

	"github.com/conclave-dev/conclave/internal/election"
)

// judge looks at one step of the Machine.
func (t *harness) judge(in election.Input, out *election.Output, term election.Term) error {
	n := len(t.env.everyone)
	status := t.machine.Status()
	switch {
	case len(out.Send) > 4*n:
		return fmt.Errorf("%d messages in one step, among %d", len(out.Send), n)
	case len(out.Events) > 4*n+4:
		return fmt.Errorf("%d events in one step, among %d", len(out.Events), n)
	case status.Term < term:
		return fmt.Errorf("its term goes back from %d to %d", term, status.Term)
	case status.Term > election.MaxTerm:
		return fmt.Errorf("its term is %d, which doesn't exist", status.Term)
	case status.Token != 0 && status.Coordinator != t.env.self:
		return fmt.Errorf("it has a token and says that %d leads", status.Coordinator)
	}
	switch in.Kind {
	case election.BecomeIneligible, election.BecomeEligible:
		t.withdrawn = in.Kind == election.BecomeIneligible
	default:
	}
	if err := t.judgeTenure(out); err != nil {
		return err
	}
	refused := slices.ContainsFunc(out.Events, func(e election.Event) bool { return e.Kind == election.Refused })
	for i := range out.Send {
		if err := t.judgeMessage(&in, refused, &out.Send[i]); err != nil {
			return fmt.Errorf("%s: %w", out.Send[i].Describe(), err)
		}
		t.env.sent = append(t.env.sent, out.Send[i])
		t.env.sent[len(t.env.sent)-1].List = slices.Clone(out.Send[i].List)
	}
	t.env.sent = t.env.sent[max(0, len(t.env.sent)-8):]
	return t.judgeRows()
}

func (t *harness) judgeMessage(in *election.Input, refused bool, m *election.Message) error {
	if m.Lamport <= t.lamport {
		return fmt.Errorf("its logical clock says %d, and before it said %d", m.Lamport, t.lamport)
	}
	t.lamport = m.Lamport
	switch {
	case m.From != t.env.self:
		return fmt.Errorf("sent by %d", t.env.self)
	case !t.env.everyone.Has(m.To):
		return fmt.Errorf("to nobody on a list")
	case m.Term > election.MaxTerm:
		return fmt.Errorf("there is no such term")
	case m.Kind == election.NoKind || m.Kind > election.Probe:
		return fmt.Errorf("there is no such kind")
	case len(m.List) > max(len(t.env.everyone), len(in.Message.List)):
		return fmt.Errorf("a list of %d, among %d", len(m.List), len(t.env.everyone))
	case in.Kind == election.Receive && !refused && in.Message.Lamport >= m.Lamport:
		return fmt.Errorf("not after the message that it answers, which says %d", in.Message.Lamport)
	}
	return nil
}

// judgeTenure: only who may be elected takes the office.
func (t *harness) judgeTenure(out *election.Output) error {
	takes := slices.ContainsFunc(out.Events, func(e election.Event) bool { return e.Kind == election.TenureStarted })
	if takes && (t.withdrawn || t.env.roster.Priority(t.env.self) == 0) {
		return fmt.Errorf("it takes the office and may not stand")
	}
	return nil
}

// judgeRows: one row for each member, at most one of them the coordinator's.
func (t *harness) judgeRows() error {
	rows := t.machine.Rows(nil)
	if len(rows) != t.env.roster.Len() {
		return fmt.Errorf("%d rows for %d members", len(rows), t.env.roster.Len())
	}
	leaders := 0
	for i, row := range rows {
		if row.ID != t.env.roster.Ranked()[i].ID {
			return fmt.Errorf("row %d is %d's, not in order of rank", i, row.ID)
		}
		if row.Status == election.Coordinating {
			leaders++
		}
	}
	if leaders > 1 {
		return fmt.Errorf("%d coordinators in one table", leaders)
	}
	return nil
}
