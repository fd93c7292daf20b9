package sim_test

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutant is a bug that is put into the code, which one of the checks must catch.
type mutant struct {
	description string
	file        string // below internal
	old         string
	new         string
	// check is the test that must fail, in this package or in another one below
	// internal, and says is what it must say.
	check      string
	pkg        string
	wantOutput string
}

const (
	scheduleCheck = "^TestSchedulesWithAllFaults$/^StatusTable$"
	seedCheck     = "^TestSeedsThatFoundBugs$"
	countCheck    = "^TestCountsOfTheContract$"
	exploreCheck  = "^TestEveryInterleavingOfThree$"
)

var mutants = []mutant{
	{
		description: "half of the members are a majority", file: "election/member.go",
		old: "len(r.ring)/2 + 1", new: "max(1, len(r.ring)/2)",
		check: "^TestSchedulesOfEverySize$", wantOutput: "one holder",
	},
	{
		description: "a member grants two at a time", file: "election/grants/ledger.go",
		old: "occupied := now < l.until && r.Holder != l.to", new: "occupied := false",
		check: scheduleCheck, wantOutput: "one holder",
	},
	{
		description: "a member that lost its memory grants at once", file: "election/grants/ledger.go",
		old: "l.quiet = now + max(lease, longest)", new: "l.quiet = now",
		check: seedCheck, wantOutput: "one holder",
	},
	{
		description: "a member forgets that it granted for a longer lease", file: "election/grants/ledger.go",
		old: "l.quiet = now + max(lease, longest)", new: "l.quiet = now + lease",
		check: scheduleCheck, wantOutput: "one holder",
	},
	{
		description: "a member that lost its memory grants any term", file: "election/grants/ledger.go",
		old: "l.bar, l.prior = clock.Floor(), clock.Floor()", new: "l.bar, l.prior = 0, 0",
		check: scheduleCheck, wantOutput: "tokens",
	},
	{
		description: "the holder counts the lease from when the grant arrives", file: "election/office/claim.go",
		old: "m.support.Add(msg.From, min(msg.Hold.Sent, m.now))", new: "m.support.Add(msg.From, m.now)",
		check: scheduleCheck, wantOutput: "one holder",
	},
	{
		description: "the holder's lease is longer than the members'", file: "election/grants/support.go",
		old: "s.lasts = lease - Margin(lease)", new: "s.lasts = lease + Margin(lease)",
		check: scheduleCheck, wantOutput: "one holder",
	},
	{
		description: "a late BEAT lowers what its sender was granted", file: "election/grants/ledger.go",
		old: "if r.Holder == l.to && r.Term < l.term {", new: "if false {",
		check: ".", pkg: "election/grants", wantOutput: "FAIL",
	},
	{
		description: "a late resignation frees a newer grant", file: "election/grants/ledger.go",
		old: "if l.to == h && l.term <= term {", new: "if l.to == h {",
		check: seedCheck, wantOutput: "one holder",
	},
	{
		description: "the end of a former life frees the grant of the present one", file: "election/grants/ledger.go",
		old: "if l.to == h {\n\t\tl.free(now)", new: "if l.to.ID == h.ID {\n\t\tl.free(now)",
		check: ".", pkg: "election/grants", wantOutput: "FAIL",
	},
	{
		description: "the old member list has no say", file: "election/grants/support.go",
		old: "len(s.adopted) >= s.roster.Previous.Majority()", new: "len(s.adopted) > 0",
		check: seedCheck, wantOutput: "one holder",
	},
	{
		description: "a list counts as adopted while grants under the old one last", file: "election/grants/ledger.go",
		old: "\tif now < l.older {\n\t\treturn version - 1\n\t}\n", new: "",
		check: seedCheck, wantOutput: "one holder",
	},
	{
		description: "terms of the old member list are forgotten", file: "election/office/claim.go",
		old: "if m.term <= m.support.Floor() && m.cfg.Mode != Available {", new: "if false {",
		check: ".", pkg: "election/office", wantOutput: "FAIL",
	},
	{
		description: "a tenure that lapsed goes on", file: "election/office/handover.go",
		old: "if m.role >= holding && m.now >= m.until() {", new: "if false {",
		check: scheduleCheck, wantOutput: "replays",
	},
	{
		description: "the incumbent doesn't wait for its application", file: "election/office/handover.go",
		old: "m.drainUntil, m.handOverAt = m.now+m.cfg.Drain, election.Never", new: "m.drainUntil, m.handOverAt = m.now, election.Never",
		check: scheduleCheck, wantOutput: "hand-over",
	},
	{
		description: "an election doesn't raise the term", file: "election/process.go",
		old: "next := max(p.Term+1, least)", new: "next := max(p.Term, 1)",
		check: scheduleCheck, wantOutput: "replays",
	},
	{
		description: "a claim that can't be granted keeps others from standing", file: "election/office/follow.go",
		old: "\tcase grants.TooLow:\n", new: "\tcase grants.TooLow:\n\t\tm.leaveTo(msg)\n",
		check: ".", pkg: "election/office", wantOutput: "FAIL",
	},
	{
		description: "a BEAT of an older term is followed", file: "election/office/follow.go",
		old: "case term < m.leaderTerm:\n\t\tout.Tell(election.Outdated, term, id)\n\t\treturn\n\t", new: "",
		check: scheduleCheck, wantOutput: "terms",
	},
	{
		description: "tokens leave out the term", file: "election/term.go",
		old: "return Token(t)<<priorityBits | Token(p)", new: "return Token(p)",
		check: scheduleCheck, wantOutput: "tokens",
	},
	{
		description: "a process whose application is dead stands", file: "election/process.go",
		old: "return !p.Withdrawn && p.Priority() > 0", new: "return p.Priority() > 0",
		check: countCheck, wantOutput: "RingAllIDs",
	},
	{
		description: "processes without a coordinator keep silent", file: "election/office/follow.go",
		old: "m.hailAt = m.now + m.cfg.Heartbeat\n}\n", new: "m.hailAt = election.Never\n}\n",
		check: scheduleCheck, wantOutput: "convergence",
	},
	{
		description: "in a large group some are never hailed", file: "election/office/follow.go",
		old: "m.turn = (m.turn + 1) % turns", new: "m.turn = 0",
		check: "^TestSchedulesOfALargeGroup$", wantOutput: "convergence",
	},
	{
		description: "any message of the coordinator counts as its BEAT", file: "election/office/office.go",
		old: "if msg.From != m.leader || msg.Kind", new: "if true || msg.Kind",
		check: scheduleCheck, wantOutput: "convergence",
	},
	{
		description: "silence is never noticed", file: "election/detector/detector.go",
		old: "if now >= heard+d.patience {", new: "if false {",
		check: scheduleCheck, wantOutput: "progress",
	},
	{
		description: "a process claims a term that it may have used before", file: "election/office/claim.go",
		old: "if term <= m.ledger.Bar() && m.ledger.To(m.now) != m.holder() {", new: "if false {",
		check: seedCheck, wantOutput: "tokens",
	},
	{
		description: "two elections overtake each other for ever", file: "election/ring.go",
		old: "\tr.Term, r.Due = m.Term, Never\n\tif waits {\n\t\tr.Due = now + r.Round()\n", new: "\tr.Term, r.Due = m.Term, Never\n\tif waits {\n\t\tr.Due = now\n",
		check: "^TestTranscripts$", pkg: "election/ringskip", wantOutput: "TestTranscripts",
	},
	{
		description: "a coordinator that is on no list any more is followed for ever", file: "election/office/handover.go",
		old: "if m.role == follower && m.leader != election.None && !m.known(m.leader) {", new: "if false {",
		check: ".", pkg: "election/office", wantOutput: "TestACoordinatorThatIsOnNoList",
	},
	{
		description: "the heir takes the office in its predecessor's term", file: "election/office/claim.go",
		old: "m.heir = false\n\t\tm.claim(term, out)", new: "m.heir = false\n\t\tm.claim(m.leaderTerm, out)",
		check: scheduleCheck, wantOutput: "tokens",
	},
	{
		description: "the higher process isn't handed the office", file: "election/office/handover.go",
		old: "if m.role != holding || m.cfg.Policy == NeverPreempt {", new: "if true {",
		check: scheduleCheck, wantOutput: "convergence",
	},
	{
		description: "two member lists bully each other out", file: "election/office/office.go",
		old: "inner.Orderly = true", new: "inner.Orderly = false",
		check: ".", pkg: "election/office", wantOutput: "TestALower",
	},
	{
		description: "what was granted to a former life counts for the next", file: "election/office/claim.go",
		old: "msg.Term != m.term || msg.Hold.Asker != m.cfg.Life {", new: "msg.Term != m.term {",
		check: ".", pkg: "election/office", wantOutput: "FAIL",
	},
	{
		description: "a stop of an earlier tenure ends this one", file: "election/office/office.go",
		old: "if m.role == draining && in.Term == m.term {", new: "if m.role == draining {",
		check: ".", pkg: "election/office", wantOutput: "FAIL",
	},
	{
		description: "a member of priority 0 stands", file: "election/office/claim.go",
		old: "return !m.withdrawn && m.roster.Priority(m.cfg.Self) > 0", new: "return !m.withdrawn",
		check: scheduleCheck, wantOutput: "membership",
	},
	{
		description: "who stepped down stands again though its application has died", file: "election/office/handover.go",
		old: "if !m.withdrawn || m.appDead || m", new: "if !m.withdrawn || m",
		check: seedCheck, wantOutput: "membership",
	},
	{
		description: "Strict takes it that a process has ended", file: "election/office/follow.go",
		old: "if m.cfg.Mode == Majority {", new: "if m.cfg.Mode != Available {",
		check: scheduleCheck, wantOutput: "one holder",
	},
	{
		description: "the application doesn't hear that its tenure has lapsed", file: "election/office/handover.go",
		old: "\tout.Tell(election.Lost, m.term, m.cfg.Self)\n", new: "",
		check: scheduleCheck, wantOutput: "lapse",
	},
	{
		description: "the application hears with the next heartbeat that its tenure has lapsed", file: "election/office/office.go",
		old: "due = min(due, m.support.Until())", new: "due = min(due, m.beatAt)",
		check: scheduleCheck, wantOutput: "lapse",
	},
	{
		description: "an operator's request doesn't wait for the application", file: "election/office/handover.go",
		old: "m.leaving = true\n\tm.drain(peer, out)", new: "m.leaving = true\n\tm.resign(peer, out)",
		check: scheduleCheck, wantOutput: "hand-over",
	},
	{
		description: "a process goes on hailing when it has found a coordinator", file: "election/office/follow.go",
		old: "if m.role != follower || m.leader != election.None && !m.waitsAbove() {", new: "if m.role != follower {",
		check: scheduleCheck, wantOutput: "convergence",
	},
	{
		description: "the end of any process is taken for the coordinator's", file: "election/office/follow.go",
		old: "if id == m.leader {\n\t\tm.leaderLost", new: "if m.role == follower {\n\t\tm.leaderLost",
		check: scheduleCheck, wantOutput: "cause",
	},
	{
		description: "messages of an election go with the heartbeat", file: "election/office/claim.go",
		old: "beat.List = m.absent()\n", new: "beat.List = m.absent()\n\t\t\tout.Send = append(out.Send, election.Message{Kind: election.Stale, From: m.cfg.Self, To: id})\n",
		check: "^TestSchedulesWithoutFaults$", wantOutput: "counts",
	},
	{
		description: "a ring waits for ever for an election that died on its way", file: "election/ring.go",
		old: "\tr.Term, r.Due = m.Term, Never\n\tif waits {\n", new: "\tr.Term, r.Due = m.Term, Never\n\tif false && waits {\n",
		check: exploreCheck, wantOutput: "agreement",
	},
	{
		description: "what a member granted under the old list is forgotten", file: "election/office/claim.go",
		old: "m.support.Report(msg.From, msg.Hold.Version, msg.Hold.Bar)", new: "m.support.Report(msg.From, msg.Hold.Version, 0)",
		check: ".", pkg: "election/office", wantOutput: "TestAClaimOfATermThatAMember",
	},
	{
		description: "late word of the end of a former life frees what this one was granted", file: "election/office/follow.go",
		old: "m.ledger.Gone(grants.Holder{ID: id, Life: life}, m.now)", new: "m.ledger.Gone(grants.Holder{ID: id, Life: max(life, m.peers[id].life)}, m.now)",
		check: ".", pkg: "election/office", wantOutput: "TestTheEndOfAnOlderLife",
	},
	{
		description: "a late grant is for whichever life is the last", file: "election/office/follow.go",
		old: "Asker: r.Life,", new: "Asker: m.peers[r.ID].life,",
		check: ".", pkg: "election/office", wantOutput: "TestALateGrantNames",
	},
	{
		description: "nobody campaigns when the coordinator is gone", file: "election/office/follow.go",
		old: "\tif m.role == follower {\n\t\tm.campaignAt = m.now + m.stagger()\n", new: "\tif false {\n\t\tm.campaignAt = m.now + m.stagger()\n",
		check: "^TestEveryInterleavingOfAnOffice$/^Bully$", wantOutput: "agreement",
	},
	{
		description: "bully: the winner announces for every ELECTION", file: "election/bully/bully.go",
		old: "if m.phase != idle || m.announced == m.Term || m.Knows(m.Term) {", new: "if m.phase != idle {",
		check: countCheck, wantOutput: "Bully",
	},
	{
		description: "bully: the only one above is asked though it is dead", file: "election/process.go",
		old: "if m.ID != dead && !p.Suspects.Has(m.ID) {", new: "if !p.Suspects.Has(m.ID) {",
		check: countCheck, wantOutput: "Bully",
	},
	{
		description: "status table: who doesn't answer isn't marked", file: "election/statustable/statustable.go",
		old: "\tcase asking:\n\t\tm.markCrashed(m.asked, out)\n", new: "\tcase asking:\n",
		check: "^TestTranscripts$", pkg: "election/statustable", wantOutput: "TestTranscripts",
	},
	{
		description: "all identifiers: forwards before it sends its own", file: "election/ringallids/ringallids.go",
		old: "if m.CanStand() && m.Own != m.Term {\n", new: "if m.CanStand() && m.Own != m.Term {\n\t\tm.Pass(out, *msg)\n\t\tm.putOwn(out)\n\t\tm.collected.Add(msg.Origin)\n\t\treturn\n",
		check: countCheck, wantOutput: "RingAllIDs",
	},
	{
		description: "champion: a lower one isn't swallowed", file: "election/ringchampion/ringchampion.go",
		old: "case m.Own != m.Term:\n\t\tm.putOwn(out)", new: "default:\n\t\tm.putOwn(out)",
		check: "^TestTranscripts$", pkg: "election/ringchampion", wantOutput: "TestTranscripts",
	},
	{
		description: "active list: forwards before it sends its own", file: "election/ringactivelist/ringactivelist.go",
		old: "if m.CanStand() && m.Own != m.Term {\n", new: "if m.CanStand() && m.Own != m.Term {\n\t\tm.Pass(out, *msg)\n\t\tm.putOwn(out)\n\t\tm.active.Add(msg.Origin)\n\t\treturn\n",
		check: "^TestTranscripts$", pkg: "election/ringactivelist", wantOutput: "TestTranscripts",
	},
	{
		description: "skip: the lowest on the list is announced", file: "election/member.go",
		old: "if r.Outranks(other, id) {", new: "if r.Outranks(id, other) {",
		check: countCheck, wantOutput: "RingSkip",
	},
}

// The checks can fail: each of these bugs is found.
func TestMutantsAreCaught(t *testing.T) {
	if testing.Short() || os.Getenv("CONCLAVE_MUTANT") != "" {
		t.Skip("a short run, or a mutant itself, tests no mutants")
	}
	for _, m := range mutants {
		t.Run(m.description, func(t *testing.T) {
			t.Parallel()
			said, err := m.run(t)
			switch {
			case err == nil:
				t.Errorf("nothing noticed it: %s passed", m.check)
			case !strings.Contains(said, "--- FAIL"):
				t.Fatalf("the check did not run: %v\n%s", err, said)
			case !strings.Contains(said, m.wantOutput):
				t.Errorf("it was noticed, but nothing says %q:\n%s", m.wantOutput, said)
			}
		})
	}
}

// run runs the check over code in which the mutant's file is overlaid.
func (m mutant) run(t *testing.T) (string, error) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", m.file))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), m.old); n != 1 {
		t.Fatalf("%s contains %q %d times, want once: adapt the mutant to the code", m.file, m.old, n)
	}
	mutated := filepath.Join(t.TempDir(), "mutated.go")
	if err := os.WriteFile(mutated, []byte(strings.Replace(string(source), m.old, m.new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutated}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-timeout=5m", "-overlay", overlay, "-run", m.check, "../"+cmp.Or(m.pkg, "sim"))
	cmd.Env = append(os.Environ(), "CONCLAVE_MUTANT=1")
	said, err := cmd.CombinedOutput()
	return string(said), err
}
