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
	bug  string
	file string // below internal
	old  string
	new  string
	// check is the test that must fail, in this package or in another one below
	// internal, and says is what it must say.
	check string
	in    string
	says  string
}

const (
	bySchedules = "^TestSchedulesWithAllFaults$/^StatusTable$"
	bySeeds     = "^TestSeedsThatFoundBugs$"
	byCounts    = "^TestCountsOfTheContract$"
	byVisits    = "^TestEveryInterleavingOfThree$"
)

var mutants = []mutant{
	{
		bug: "half of the members are a majority", file: "election/member.go",
		old: "len(r.ring)/2 + 1", new: "max(1, len(r.ring)/2)",
		check: "^TestSchedulesOfEverySize$", says: "one holder",
	},
	{
		bug: "a member grants two at a time", file: "election/grants/ledger.go",
		old: "occupied := now < l.until && r.Holder != l.to", new: "occupied := false",
		check: bySchedules, says: "one holder",
	},
	{
		bug: "a member that lost its memory grants at once", file: "election/grants/ledger.go",
		old: "l.quiet = now + max(lease, longest)", new: "l.quiet = now",
		check: bySeeds, says: "one holder",
	},
	{
		bug: "a member forgets that it granted for a longer lease", file: "election/grants/ledger.go",
		old: "l.quiet = now + max(lease, longest)", new: "l.quiet = now + lease",
		check: bySchedules, says: "one holder",
	},
	{
		bug: "a member that lost its memory grants any term", file: "election/grants/ledger.go",
		old: "l.bar, l.prior = clock.Floor(), clock.Floor()", new: "l.bar, l.prior = 0, 0",
		check: bySchedules, says: "tokens",
	},
	{
		bug: "the holder counts the lease from when the grant arrives", file: "election/office/claim.go",
		old: "m.support.Add(msg.From, min(msg.Hold.Sent, m.now))", new: "m.support.Add(msg.From, m.now)",
		check: bySchedules, says: "one holder",
	},
	{
		bug: "the holder's lease is longer than the members'", file: "election/grants/support.go",
		old: "s.lasts = lease - Margin(lease)", new: "s.lasts = lease + Margin(lease)",
		check: bySchedules, says: "one holder",
	},
	{
		bug: "a late BEAT lowers what its sender was granted", file: "election/grants/ledger.go",
		old: "if r.Holder == l.to && r.Term < l.term {", new: "if false {",
		check: ".", in: "election/grants", says: "FAIL",
	},
	{
		bug: "a late resignation frees a newer grant", file: "election/grants/ledger.go",
		old: "if l.to == h && l.term <= term {", new: "if l.to == h {",
		check: bySeeds, says: "one holder",
	},
	{
		bug: "the end of a former life frees the grant of the present one", file: "election/grants/ledger.go",
		old: "if l.to == h {\n\t\tl.free(now)", new: "if l.to.ID == h.ID {\n\t\tl.free(now)",
		check: ".", in: "election/grants", says: "FAIL",
	},
	{
		bug: "the old member list has no say", file: "election/grants/support.go",
		old: "len(s.adopted) >= s.roster.Previous.Majority()", new: "len(s.adopted) > 0",
		check: bySeeds, says: "one holder",
	},
	{
		bug: "a list counts as adopted while grants under the old one last", file: "election/grants/ledger.go",
		old: "\tif now < l.older {\n\t\treturn version - 1\n\t}\n", new: "",
		check: bySeeds, says: "one holder",
	},
	{
		bug: "terms of the old member list are forgotten", file: "election/office/claim.go",
		old: "if m.term <= m.support.Floor() && m.cfg.Mode != Available {", new: "if false {",
		check: ".", in: "election/office", says: "FAIL",
	},
	{
		bug: "a tenure that lapsed goes on", file: "election/office/handover.go",
		old: "if m.role >= holding && m.now >= m.until() {", new: "if false {",
		check: bySchedules, says: "replays",
	},
	{
		bug: "the incumbent doesn't wait for its application", file: "election/office/handover.go",
		old: "m.drainUntil, m.handOverAt = m.now+m.cfg.Drain, election.Never", new: "m.drainUntil, m.handOverAt = m.now, election.Never",
		check: bySchedules, says: "hand-over",
	},
	{
		bug: "an election doesn't raise the term", file: "election/process.go",
		old: "next := max(p.Term+1, least)", new: "next := max(p.Term, 1)",
		check: bySchedules, says: "replays",
	},
	{
		bug: "a claim that can't be granted keeps others from standing", file: "election/office/follow.go",
		old: "\tcase grants.TooLow:\n", new: "\tcase grants.TooLow:\n\t\tm.leaveTo(msg)\n",
		check: ".", in: "election/office", says: "FAIL",
	},
	{
		bug: "a BEAT of an older term is followed", file: "election/office/follow.go",
		old: "case term < m.leaderTerm:\n\t\tout.Tell(election.Outdated, term, id)\n\t\treturn\n\t", new: "",
		check: bySchedules, says: "terms",
	},
	{
		bug: "tokens leave out the term", file: "election/term.go",
		old: "return Token(t)<<priorityBits | Token(p)", new: "return Token(p)",
		check: bySchedules, says: "tokens",
	},
	{
		bug: "a process whose application is dead stands", file: "election/process.go",
		old: "return !p.Withdrawn && p.Priority() > 0", new: "return p.Priority() > 0",
		check: byCounts, says: "RingAllIDs",
	},
	{
		bug: "processes without a coordinator keep silent", file: "election/office/follow.go",
		old: "m.hailAt = m.now + m.cfg.Heartbeat\n}\n", new: "m.hailAt = election.Never\n}\n",
		check: bySchedules, says: "convergence",
	},
	{
		bug: "in a large group some are never hailed", file: "election/office/follow.go",
		old: "m.turn = (m.turn + 1) % turns", new: "m.turn = 0",
		check: "^TestSchedulesOfALargeGroup$", says: "convergence",
	},
	{
		bug: "any message of the coordinator counts as its BEAT", file: "election/office/office.go",
		old: "if msg.From != m.leader || msg.Kind", new: "if true || msg.Kind",
		check: bySchedules, says: "convergence",
	},
	{
		bug: "silence is never noticed", file: "election/detector/detector.go",
		old: "if now >= heard+d.patience {", new: "if false {",
		check: bySchedules, says: "progress",
	},
	{
		bug: "a process claims a term that it may have used before", file: "election/office/claim.go",
		old: "if term <= m.ledger.Bar() && m.ledger.To(m.now) != m.holder() {", new: "if false {",
		check: bySeeds, says: "tokens",
	},
	{
		bug: "two elections overtake each other for ever", file: "election/ring.go",
		old: "\tr.Term, r.Due = m.Term, Never\n\tif waits {\n\t\tr.Due = now + r.Round()\n", new: "\tr.Term, r.Due = m.Term, Never\n\tif waits {\n\t\tr.Due = now\n",
		check: "^TestTranscripts$", in: "election/ringskip", says: "TestTranscripts",
	},
	{
		bug: "a coordinator that is on no list any more is followed for ever", file: "election/office/handover.go",
		old: "if m.role == follower && m.leader != election.None && !m.known(m.leader) {", new: "if false {",
		check: ".", in: "election/office", says: "TestACoordinatorThatIsOnNoList",
	},
	{
		bug: "the heir takes the office in its predecessor's term", file: "election/office/claim.go",
		old: "m.heir = false\n\t\tm.claim(term, out)", new: "m.heir = false\n\t\tm.claim(m.leaderTerm, out)",
		check: bySchedules, says: "tokens",
	},
	{
		bug: "the higher process isn't handed the office", file: "election/office/handover.go",
		old: "if m.role != holding || m.cfg.Policy == NeverPreempt {", new: "if true {",
		check: bySchedules, says: "convergence",
	},
	{
		bug: "two member lists bully each other out", file: "election/office/office.go",
		old: "inner.Orderly = true", new: "inner.Orderly = false",
		check: ".", in: "election/office", says: "TestALower",
	},
	{
		bug: "what was granted to a former life counts for the next", file: "election/office/claim.go",
		old: "msg.Term != m.term || msg.Hold.Asker != m.cfg.Life {", new: "msg.Term != m.term {",
		check: ".", in: "election/office", says: "FAIL",
	},
	{
		bug: "a stop of an earlier tenure ends this one", file: "election/office/office.go",
		old: "if m.role == draining && in.Term == m.term {", new: "if m.role == draining {",
		check: ".", in: "election/office", says: "FAIL",
	},
	{
		bug: "a member of priority 0 stands", file: "election/office/claim.go",
		old: "return !m.withdrawn && m.roster.Priority(m.cfg.Self) > 0", new: "return !m.withdrawn",
		check: bySchedules, says: "membership",
	},
	{
		bug: "who stepped down stands again though its application has died", file: "election/office/handover.go",
		old: "if !m.withdrawn || m.appDead || m", new: "if !m.withdrawn || m",
		check: bySeeds, says: "membership",
	},
	{
		bug: "Strict takes it that a process has ended", file: "election/office/follow.go",
		old: "if m.cfg.Mode == Majority {", new: "if m.cfg.Mode != Available {",
		check: bySchedules, says: "one holder",
	},
	{
		bug: "the application doesn't hear that its tenure has lapsed", file: "election/office/handover.go",
		old: "\tout.Tell(election.Lost, m.term, m.cfg.Self)\n", new: "",
		check: bySchedules, says: "lapse",
	},
	{
		bug: "the application hears with the next heartbeat that its tenure has lapsed", file: "election/office/office.go",
		old: "due = min(due, m.support.Until())", new: "due = min(due, m.beatAt)",
		check: bySchedules, says: "lapse",
	},
	{
		bug: "an operator's request doesn't wait for the application", file: "election/office/handover.go",
		old: "m.leaving = true\n\tm.drain(peer, out)", new: "m.leaving = true\n\tm.resign(peer, out)",
		check: bySchedules, says: "hand-over",
	},
	{
		bug: "a process goes on hailing when it has found a coordinator", file: "election/office/follow.go",
		old: "if m.role != follower || m.leader != election.None && !m.waitsAbove() {", new: "if m.role != follower {",
		check: bySchedules, says: "convergence",
	},
	{
		bug: "the end of any process is taken for the coordinator's", file: "election/office/follow.go",
		old: "if id == m.leader {\n\t\tm.leaderLost", new: "if m.role == follower {\n\t\tm.leaderLost",
		check: bySchedules, says: "cause",
	},
	{
		bug: "messages of an election go with the heartbeat", file: "election/office/claim.go",
		old: "beat.List = m.absent()\n", new: "beat.List = m.absent()\n\t\t\tout.Send = append(out.Send, election.Message{Kind: election.Stale, From: m.cfg.Self, To: id})\n",
		check: "^TestSchedulesWithoutFaults$", says: "counts",
	},
	{
		bug: "a ring waits for ever for an election that died on its way", file: "election/ring.go",
		old: "\tr.Term, r.Due = m.Term, Never\n\tif waits {\n", new: "\tr.Term, r.Due = m.Term, Never\n\tif false && waits {\n",
		check: byVisits, says: "agreement",
	},
	{
		bug: "what a member granted under the old list is forgotten", file: "election/office/claim.go",
		old: "m.support.Report(msg.From, msg.Hold.Version, msg.Hold.Bar)", new: "m.support.Report(msg.From, msg.Hold.Version, 0)",
		check: ".", in: "election/office", says: "TestAClaimOfATermThatAMember",
	},
	{
		bug: "late word of the end of a former life frees what this one was granted", file: "election/office/follow.go",
		old: "m.ledger.Gone(grants.Holder{ID: id, Life: life}, m.now)", new: "m.ledger.Gone(grants.Holder{ID: id, Life: max(life, m.peers[id].life)}, m.now)",
		check: ".", in: "election/office", says: "TestTheEndOfAnOlderLife",
	},
	{
		bug: "a late grant is for whichever life is the last", file: "election/office/follow.go",
		old: "Asker: r.Life,", new: "Asker: m.peers[r.ID].life,",
		check: ".", in: "election/office", says: "TestALateGrantNames",
	},
	{
		bug: "nobody campaigns when the coordinator is gone", file: "election/office/follow.go",
		old: "\tif m.role == follower {\n\t\tm.campaignAt = m.now + m.stagger()\n", new: "\tif false {\n\t\tm.campaignAt = m.now + m.stagger()\n",
		check: "^TestEveryInterleavingOfAnOffice$/^Bully$", says: "agreement",
	},
	{
		bug: "bully: the winner announces for every ELECTION", file: "election/bully/bully.go",
		old: "if m.phase != idle || m.announced == m.Term || m.Knows(m.Term) {", new: "if m.phase != idle {",
		check: byCounts, says: "Bully",
	},
	{
		bug: "bully: the only one above is asked though it is dead", file: "election/process.go",
		old: "if m.ID != dead && !p.Suspects.Has(m.ID) {", new: "if !p.Suspects.Has(m.ID) {",
		check: byCounts, says: "Bully",
	},
	{
		bug: "status table: who doesn't answer isn't marked", file: "election/statustable/statustable.go",
		old: "\tcase asking:\n\t\tm.markCrashed(m.asked, out)\n", new: "\tcase asking:\n",
		check: "^TestTranscripts$", in: "election/statustable", says: "TestTranscripts",
	},
	{
		bug: "all identifiers: forwards before it sends its own", file: "election/ringallids/ringallids.go",
		old: "if m.CanStand() && m.Own != m.Term {\n", new: "if m.CanStand() && m.Own != m.Term {\n\t\tm.Pass(out, *msg)\n\t\tm.putOwn(out)\n\t\tm.collected.Add(msg.Origin)\n\t\treturn\n",
		check: byCounts, says: "RingAllIDs",
	},
	{
		bug: "champion: a lower one isn't swallowed", file: "election/ringchampion/ringchampion.go",
		old: "case m.Own != m.Term:\n\t\tm.putOwn(out)", new: "default:\n\t\tm.putOwn(out)",
		check: "^TestTranscripts$", in: "election/ringchampion", says: "TestTranscripts",
	},
	{
		bug: "active list: forwards before it sends its own", file: "election/ringactivelist/ringactivelist.go",
		old: "if m.CanStand() && m.Own != m.Term {\n", new: "if m.CanStand() && m.Own != m.Term {\n\t\tm.Pass(out, *msg)\n\t\tm.putOwn(out)\n\t\tm.active.Add(msg.Origin)\n\t\treturn\n",
		check: "^TestTranscripts$", in: "election/ringactivelist", says: "TestTranscripts",
	},
	{
		bug: "skip: the lowest on the list is announced", file: "election/member.go",
		old: "if r.Outranks(other, id) {", new: "if r.Outranks(id, other) {",
		check: byCounts, says: "RingSkip",
	},
}

// The checks can fail: each of these bugs is found.
func TestMutantsAreCaught(t *testing.T) {
	if testing.Short() || os.Getenv("CONCLAVE_MUTANT") != "" {
		t.Skip("a short run, or a mutant itself, tests no mutants")
	}
	for _, m := range mutants {
		t.Run(m.bug, func(t *testing.T) {
			t.Parallel()
			said, err := m.run(t)
			switch {
			case err == nil:
				t.Errorf("nothing noticed it: %s passed", m.check)
			case !strings.Contains(said, "--- FAIL"):
				t.Fatalf("the check did not run: %v\n%s", err, said)
			case !strings.Contains(said, m.says):
				t.Errorf("it was noticed, but nothing says %q:\n%s", m.says, said)
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
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-timeout=5m", "-overlay", overlay, "-run", m.check, "../"+cmp.Or(m.in, "sim"))
	cmd.Env = append(os.Environ(), "CONCLAVE_MUTANT=1")
	said, err := cmd.CombinedOutput()
	return string(said), err
}
