package tracecheck

import (
	"fmt"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// TestNumbersAreThoseOfTheFormat compares what this package can't import.
func TestNumbersAreThoseOfTheFormat(t *testing.T) {
	ours := []any{
		receive, adopt, ended, reserved, tenureStarted, tenureLost, officeResigned, beat, grant, deny, resigned, probe,
		available, majority, strict, uint64(1)<<counterBits | block, uint64(1) << (counterBits + placeBits), lasts(500),
	}
	theirs := []any{
		election.Receive, election.Adopt, election.Ended, election.Reserved,
		election.TenureStarted, election.TenureLost, election.OfficeResigned,
		election.Beat, election.Grant, election.Deny, election.Resigned, election.Probe,
		office.Available, office.Majority, office.Strict,
		uint64(election.FirstTerm(1) + election.Block), uint64(election.TokenOf(election.FirstTerm(1), 0)),
		500 - int64(grants.Margin(500)),
	}
	number := func(v any) string { return fmt.Sprintf("%d", v) }
	for i := range ours {
		expect.Equalf(t, number(ours[i]), number(theirs[i]), "number %d", i)
	}
}

// The members are a, b and c, with the numbers 1 to 3.
const (
	lease = 160
	first = 1<<counterBits + 1
)

func listOf(version uint32) *list {
	return &list{Version: version, Ring: []listed{{1, 1, 1}, {2, 2, 2}, {3, 3, 3}}}
}

func start(name string, number, life uint32, now int64) event {
	h := &header{Agent: name, Names: []string{"", "a", "b", "c"}}
	h.Office.Mode, h.Office.Lease, h.Office.Self, h.Office.Life, h.Office.Start = majority, lease, number, life, now
	h.Office.Identity, h.Office.Reserved, h.Office.Roster = uint64(number), first+10, listOf(1)
	return event{trace: name, at: now, header: h}
}

func does(name string, now int64, s step) event {
	s.Now = now
	return event{trace: name, at: now, step: &s}
}

func receives(name string, now int64, m message, s step) event {
	s.Kind, s.Message = receive, m
	return does(name, now, s)
}

func begins(number uint32, place, term uint64, until int64) step {
	token := term<<placeBits | place
	return step{
		Events: []happening{{tenureStarted, term, token}},
		Status: status{Coordinator: number, Term: term, Token: token, Until: until},
	}
}

// story is an election of c, which renews its grant and resigns, and one of b. Member a restarts in between.
func story() []event {
	of := func(kind uint8, from, to uint32, term uint64, sent int64) message {
		return message{Kind: kind, From: from, To: to, Term: term, Hold: hold{Sent: sent, Lease: lease, Life: 1, Version: 1}}
	}
	request, renewal, end := of(beat, 3, 1, first, 10), of(beat, 3, 1, first, 12), of(resigned, 3, 1, first, 0)
	answer, renewed := of(grant, 1, 3, first, 10), of(grant, 1, 3, first, 12)
	second, granted := of(beat, 2, 1, first+1, 60), of(grant, 1, 2, first+1, 60)
	renewal.Hold.Held, answer.Hold.RequesterLife, renewed.Hold.RequesterLife = true, 1, 1
	granted.Hold.Life, granted.Hold.RequesterLife, granted.Hold.HighestGranted = 2, 1, first
	leads, again := begins(3, 2, first, 10+lasts(lease)), start("a", 1, 2, 30)
	leads.Send, again.trace = []message{renewal}, "a2"
	longer := leads.Status
	longer.Until += 2
	return []event{
		start("a", 1, 1, 0), start("b", 2, 1, 0), start("c", 3, 1, 0),
		does("c", 10, step{Send: []message{request}}),
		receives("a", 11, request, step{Send: []message{answer}}),
		receives("c", 12, answer, leads),
		receives("a", 13, renewal, step{Send: []message{renewed}, Status: status{Coordinator: 3, Term: first}}),
		receives("c", 14, renewed, step{Status: longer}),
		does("c", 20, step{
			Events: []happening{{officeResigned, first, 0}}, Send: []message{end}, Status: status{Term: first},
		}),
		again,
		receives("a2", 40, end, step{}),
		does("b", 60, step{Send: []message{second}}),
		receives("a2", 61, second, step{Send: []message{granted}}),
		receives("b", 62, granted, begins(2, 1, first+1, 60+lasts(lease))),
	}
}

func tell(events []event) error {
	c := New()
	for i := range events {
		if err := c.check(&events[i]); err != nil {
			return err
		}
	}
	return nil
}

// TestEachRuleIsNeeded breaks each rule in a story that follows all.
func TestEachRuleIsNeeded(t *testing.T) {
	expect.Succeed(t, tell(story()))
	for rule, change := range map[string]func(s []event){
		"ARRIVES":                 func(s []event) { s[5].step.Message.Hold.Lease++ },
		"REQUEST":                 func(s []event) { s[4].step.Kind = 0 },
		"FORGETFUL_GRANTS":        func(s []event) { s[0].header.Office.Identity = 9 },
		"FORGETFUL_ADOPTS":        func(s []event) { s[0].header.Office.Identity, s[4].step.Send[0].Kind = 9, deny },
		"VOTES_HERE":              func(s []event) { s[2].header.Office.Identity = 9 },
		"NO_QUIET_AFTER_RESTART":  func(s []event) { s[9].header.Office.MemoryLost = true },
		"OUTDATED_DISK":           func(s []event) { s[0].header.Office.Reserved += block },
		"GRANT_OLD_LIST":          func(s []event) { s[9].header.Office.Roster = listOf(2) },
		"GRANT_TWICE":             func(s []event) { s[10].step.Message.Hold.Life = 9 },
		"GRANT_ANY_TERM":          func(s []event) { setTerm(s[11:], first) },
		"GRANT_ABOVE_RESERVATION": func(s []event) { setTerm(s[3:], first+100) },
		"GRANT_REQUESTED_LEASE":   func(s []event) { s[4].step.Send[0].Hold.Lease++ },
		"REPORT_TOO_EARLY":        func(s []event) { adoptSecond(s[6].step).Kind = deny },
		"HIGHEST":                 func(s []event) { s[12].step.Send[0].Hold.HighestGranted-- },
		"CURRENT":                 func(s []event) { s[4].step.Send[0].Hold.Version++ },
		"CLAIM_NEWER_LIST":        func(s []event) { setTerm(s[3:], first+1<<counterBits) },
		"LOWEST":                  func(s []event) { s[8].step.Send = append(s[8].step.Send, s[3].step.Send...) },
		"HELD":                    func(s []event) { s[5].step.Send[0].Term++ },
		"CANDIDATES":              func(s []event) { s[2].header.Office.Roster.Ring[2].Priority = 0 },
		"RESIGN":                  func(s []event) { s[8].step.Send[0].Term++ },
		"ABANDON_TENURE":          func(s []event) { s[8].step.Send[0].Hold.Held = true },
		"HOLD":                    func(s []event) { s[5].step.Status.Until++ },
		"LAPSES":                  func(s []event) { s[7].step.Now += lease },
		"TOKEN":                   func(s []event) { s[5].step.Events[0].Token++ },
		"FOLLOW":                  func(s []event) { s[6].step.Status.Coordinator = 2 },
		"TERM":                    func(s []event) { s[8].step.Status.Term-- },
		"LIFE_ENDED":              func(s []event) { s[12].trace = "a" },
		"NEW_LIST_SUFFICES": func(s []event) {
			m := adoptSecond(s[8].step)
			m.Kind, m.From, m.To, m.Term, m.Hold.Settled = beat, 3, 1, first, true
		},
		"GRANT_LATE_REQUEST": func(s []event) { // a receives the first request again, after one in a higher term
			setTerm(s[3:], first-1)
			s[5], s[6], s[7] = does("c", 12, step{Send: story()[3].step.Send}), story()[4], s[4]
			s[6].step.Send[0].Hold.HighestGranted = first - 1
		},
	} {
		changed := story()
		change(changed)
		expect.ErrorContainsf(t, tell(changed), rule+": ", "%s", rule)
	}
}

// setTerm replaces the term of a claim.
func setTerm(s []event, term uint64) {
	for _, e := range s[:2] {
		e.step.Message.Term, e.step.Send[0].Term = term, term
	}
}

// adoptSecond makes a step the adoption of a second list, in which the process sends a message.
func adoptSecond(s *step) *message {
	*s = step{Kind: adopt, Now: s.Now, Roster: listOf(2), Send: []message{{
		From: 1, To: 3, Hold: hold{Version: 2, RequesterLife: 1},
	}}}
	s.Roster.Previous = listOf(1)
	return &s.Send[0]
}

// TestAloneProcesses checks what follows from the other rules in Majority, and what remains in Available. Two
// processes each believe to be the only member.
func TestAloneProcesses(t *testing.T) {
	for rule, second := range map[string]struct {
		mode   uint8
		number uint32
		term   uint64
		at     int64
	}{
		"TWO_HOLDERS":       {majority, 2, first + 1, 11},
		"TOKEN_FELL":        {majority, 2, first, 500},
		"AVAILABLE_FORGETS": {available, 1, first, 11},
		"AVAILABLE_ABOVE":   {available, 2, first + 100, 11},
	} {
		alone := func(number, life uint32, term uint64, at int64) []event {
			s := start([]string{"a", "b"}[number-1], number, life, at)
			s.header.Office.Mode, s.header.Office.Roster.Ring = second.mode, s.header.Office.Roster.Ring[number-1:number]
			return []event{s, does(s.trace, at, begins(number, 0, term, at+lasts(lease)))}
		}
		err := tell(append(alone(1, 1, first, 10), alone(second.number, 2, second.term, second.at)...))
		expect.ErrorContainsf(t, err, rule+": ", "%s", rule)
	}
}
