package sim_test

import "cmp"

// mutant is a bug that is injected into the code and that a test must detect.
type mutant struct {
	description string
	file        string // below internal
	old         string
	new         string
	// check is the pattern of the test that must fail, pkg its package below internal,
	// by default this one, and wantOutput a part of its output.
	check      string
	pkg        string
	wantOutput string
}

// folder is that of the package below internal whose tests check the mutant.
func (m mutant) folder() string { return cmp.Or(m.pkg, "sim") }

const (
	scheduleCheck = "^TestSchedulesWithAllFaults$/^StatusTable$"
	seedCheck     = "^TestSeedsThatFoundBugs$"
	// countCheck is in election/catalog, and followed by the name of an election.
	countCheck = "^TestCountsMatchFormulas$"
	// eachFaultCheck is followed by the name of a fault.
	eachFaultCheck = "^TestSchedulesWithEachFault$"
	exploreCheck   = "^TestEveryInterleavingOfThree$"
)

var mutants = []mutant{{
	description: "half of the members count as a majority", file: "election/member.go",
	old: "len(r.ring)/2 + 1", new: "max(1, len(r.ring)/2)", check: "^TestSchedulesOfEverySize$", wantOutput: "one holder",
}, {
	description: "a member issues two grants at a time", file: "election/grants/ledger.go",
	old: "occupied := now < l.until && r.Holder != l.holder", new: "occupied := false",
	check: scheduleCheck, wantOutput: "one holder",
}, {
	description: "a member grants a term to two processes, one after the other", file: "election/grants/ledger.go",
	old: "if r.Term <= l.HighestGranted() && !sameTerm && (!r.Held || occupied) {", new: "if false && sameTerm {",
	check: scheduleCheck, wantOutput: "tokens",
}, {
	description: "a member that lost its memory issues grants at once", file: "election/grants/ledger.go",
	old: "l.silentUntil = max(now, ended+max(lease, longest))", new: "l.silentUntil = now",
	check: seedCheck, wantOutput: "one holder",
}, {
	description: "a member forgets that it granted for a longer lease", file: "election/grants/ledger.go",
	old: "l.silentUntil = max(now, ended+max(lease, longest))", new: "l.silentUntil = max(now, ended+lease)",
	check: scheduleCheck, wantOutput: "one holder",
}, {
	description: "a member counts its silence from before its earlier incarnations ended",
	file:        "election/office/config.go",
	old:         "c.Start-c.EarlierEnded, c.Start)", new: "c.Start-2*c.EarlierEnded, c.Start)",
	check: seedCheck, wantOutput: "one holder",
}, {
	description: "a reboot forgets what was reserved", file: "election/grants/ledger.go",
	old: "l.forgotten = forgotten", new: "l.forgotten = 0", check: scheduleCheck, wantOutput: "tokens",
}, {
	description: "the holder counts the lease from when the grant arrives", file: "election/office/claim.go",
	old: "m.support.Add(msg.From, sent, ", new: "m.support.Add(msg.From, m.now, ",
	check: scheduleCheck, wantOutput: "one holder",
}, {
	description: "the holder's lease is longer than that of its grants", file: "election/grants/support.go",
	old: "until := sent + lease - Margin(lease)", new: "until := sent + lease + Margin(lease)",
	check: scheduleCheck, wantOutput: "one holder",
}, {
	description: "a late BEAT lowers the term of its sender's grant", file: "election/grants/ledger.go",
	old: "if r.Holder == l.holder && r.Term < l.term {", new: "if false {",
	check: ".", pkg: "election/grants", wantOutput: "FAIL",
}, {
	description: "a late resignation releases a newer grant", file: "election/grants/ledger.go",
	old: "if l.holder == h && l.term <= term {", new: "if l.holder == h {", check: seedCheck, wantOutput: "one holder",
}, {
	description: "the word of a coordinator itself is enough to follow it", file: "election/office/contender.go",
	old: "if granted {", new: "if true {",
	check: "TestMemberCannotPreventElection", pkg: "election/office", wantOutput: "got no coordinator for",
}, {
	description: "a coordinator gives up its term whenever a member asks (Available)",
	file:        "election/office/available.go",
	old:         "p.raisesAgainAt = m.now + m.cfg.usualLease()<<p.raises", new: "",
	check: "TestMemberCannotPreventElection", pkg: "election/office", wantOutput: "tenures",
}, {
	description: "the end of an earlier incarnation releases the grant of the current one",
	file:        "election/grants/ledger.go",
	old:         "if l.holder == h {\n\t\tl.free(now)", new: "if l.holder.ID == h.ID {\n\t\tl.free(now)",
	check: ".", pkg: "election/grants", wantOutput: "FAIL",
}, {
	description: "the old member list is ignored", file: "election/grants/support.go",
	old: "len(s.adopted) >= s.roster.Previous.Majority()", new: "len(s.adopted) >= 1",
	check: seedCheck, wantOutput: "one holder",
}, {
	description: "a list counts as adopted while grants under the old one last", file: "election/grants/ledger.go",
	old: "\tif now < l.olderUntil {\n\t\treturn 0\n\t}\n", new: "", check: seedCheck, wantOutput: "one holder",
}, {
	description: "an expired tenure continues", file: "election/office/hold.go",
	old: "if m.role >= Holder && (m.now >= m.until() || m.stoodStill()) {", new: "if false {",
	check: scheduleCheck, wantOutput: "replay:",
}, {
	description: "the incumbent doesn't wait for its application", file: "election/office/role.go",
	old: "m.tenure.successor, m.tenure.drainUntil = successor, m.now+m.cfg.DrainTimeout",
	new: "m.tenure.successor, m.tenure.drainUntil = successor, m.now", check: scheduleCheck, wantOutput: "hand-over",
}, {
	description: "an election doesn't raise the term", file: "election/process.go",
	old: "next := max(p.Term+1, least)", new: "next := max(p.Term, 1)",
	check: "^TestScripts$/^StatusTable$", pkg: "election/catalog", wantOutput: "TestScripts",
}, {
	description: "a claim that can't be granted keeps others from campaigning", file: "election/office/grant.go",
	old: "\tcase grants.TermTooLow:\n", new: "\tcase grants.TermTooLow:\n\t\tm.deferTo(msg)\n",
	check: "^TestClaimThatCannotBeGranted", pkg: "election/office", wantOutput: "FAIL",
}, {
	description: "followers don't learn that the list has settled", file: "election/office/follow.go",
	old: "m.support.Settle()", new: "m.support.Settled()",
	check: "^TestMembersLearnThatListHasSettled$", pkg: "election/office", wantOutput: "holders: got [], want [3]",
}, {
	description: "a process campaigns without a pre-vote", file: "election/office/vacancy.go",
	old: "return p.answersUntil > m.now && !m.follows(p)\n", new: "return true || !m.follows(p)\n",
	check: "^TestOnlyUnprovenVacancyNeedsPreVote$", pkg: "election/office", wantOutput: "pre-vote",
}, {
	description: "a process is ready though it reaches no majority", file: "election/office/eligibility.go",
	old: "case s.cfg.Mode == Available || s.coordinator != election.None && !s.mayTakeOver():", new: "case true:",
	check: "^TestEveryStaticGraphHasCoordinatorThatStays$/^Majority$/^Bully$", pkg: "election/office", wantOutput: "FAIL",
}, {
	description: "an election that led nowhere is repeated", file: "election/office/campaign.go",
	old: "named || m.vacancy.attempts > 1 || ", new: "named || ",
	check: "^TestEveryStaticGraphHasCoordinatorThatStays$/^Majority$/^RingActiveList$", pkg: "election/office",
	wantOutput: "FAIL",
}, {
	description: "a process in Available mode leaves its coordinator for a lower one",
	file:        "election/office/available.go",
	old:         "!m.roster.Outranks(msg.From, m.coordinator))", new: "false)",
	check: "^TestAvailableSettlesInEveryStaticGraph$/^Available$/^Bully$", pkg: "election/office", wantOutput: "FAIL",
}, {
	description: "a claim counts on members that have ended", file: "election/office/claim.go",
	old: "!m.peers[id].refusedClaim && !m.detector.Suspects(id) })", new: "!m.peers[id].refusedClaim })",
	check: "^TestClaimDoesNotCountOnEndedMembers$", pkg: "election/office", wantOutput: "FAIL",
}, {
	description: "a pre-vote waits for the next heartbeat", file: "election/office/campaign.go",
	old: "m.probes.at = m.now // the next", new: "// the next",
	check: "^TestPreVoteBeginsWithProbes$", pkg: "election/office", wantOutput: "FAIL",
}, {
	description: "the RESIGNED of a lapsed tenure doesn't name its life", file: "election/office/office.go",
	old: "sent := len(out.Send)\n\tm.expireTenure(out)", new: "m.expireTenure(out)\n\tsent := len(out.Send)",
	check: "^TestAnnouncedLapseReleasesGrants$", pkg: "election/office", wantOutput: "FAIL",
}, {
	description: "a candidate continues its claim when its application has died", file: "election/office/step.go",
	old: "m.becomeIneligible(applicationDead, out)\n\t\tm.abandonClaim(out)",
	new: "m.becomeIneligible(applicationDead, out)", check: "^TestTransitionsAreDocumented$", wantOutput: "FAIL",
}, {
	description: "a recovering process claims the office", file: "election/office/recover.go",
	old: "return !m.recovery.active() && m.coordinator == election.None", new: "return m.coordinator == election.None",
	check: "^TestAvailableSettlesInEveryStaticGraph$/^Available$/^Bully$", pkg: "election/office",
	wantOutput: "lacks {follower candidate recover}",
}, {
	description: "a process claims the office while it follows a coordinator", file: "election/office/recover.go",
	old: "return !m.recovery.active() && m.coordinator == election.None", new: "return !m.recovery.active()",
	check: "^TestRecoveryDoesntDisturbCoordinator$", pkg: "election/office", wantOutput: "recovered while",
}, {
	description: "a recovery doesn't wait until the members know that the process is alive",
	file:        "election/office/recover.go",
	old:         "announcing, m.now+m.cfg.Timing.Reply", new: "announcing, m.now",
	check: "^TestRecoveryWaitsForAnswersOfMembers$", pkg: "election/office", wantOutput: "REQUEST",
}, {
	description: "a lapsed tenure is kept secret", file: "election/office/hold.go",
	old: "\tm.sendResigned(election.None, out)\n\tm.leaveOffice(out)", new: "\tm.leaveOffice(out)",
	check: "^TestLapsedTenureIsAnnounced$", pkg: "election/office", wantOutput: "FAIL",
}, {
	description: "a BEAT of an older term is followed", file: "election/office/follow.go",
	old: "case term < m.coordinatorTerm:", new: "case false:", check: scheduleCheck, wantOutput: "terms",
}, {
	description: "tokens leave out the term", file: "election/term.go",
	old: "return Token(t)<<placeBits | Token(place&(1<<placeBits-1))", new: "return Token(place)",
	check: scheduleCheck, wantOutput: "tokens",
}, {
	description: "a process whose application is dead is elected", file: "election/process.go",
	old: "return !p.Ineligible && p.Priority() > 0", new: "return p.Priority() > 0",
	check: countCheck + "/^RingAllIDs$", pkg: "election/catalog", wantOutput: "RingAllIDs",
}, {
	description: "processes without a coordinator send no probes", file: "election/office/probe.go",
	old: "if m.coordinator != election.None && !m.mayTakeOver() {", new: "if !m.mayTakeOver() {",
	check: scheduleCheck, wantOutput: "progress",
}, {
	description: "in a large group some processes are never probed", file: "election/office/probe.go",
	old: "m.probes.turn = (m.probes.turn + 1) % turns", new: "m.probes.turn = 0",
	check: "^TestSchedulesOfALargeGroup$", wantOutput: "convergence",
}, {
	description: "any message of the coordinator counts as its BEAT", file: "election/office/receive.go",
	old: "if msg.From != m.coordinator || msg.Kind", new: "if true || msg.Kind",
	check: seedCheck, wantOutput: "convergence",
}, {
	description: "the detector never reports a silent process", file: "election/detector/detector.go",
	old: "if now >= lastSeen+d.timeout {", new: "if false {", check: scheduleCheck, wantOutput: "progress",
}, {
	description: "a process claims a term that it may have used before", file: "election/office/config.go",
	old: "return max(c.Term, c.Forgotten)", new: "return c.Term", check: scheduleCheck, wantOutput: "tokens",
}, {
	description: "two elections overtake each other forever", file: "election/ring/ring.go",
	old: "\tif waits {\n\t\tm.deadline = now + m.round()\n", new: "\tif waits {\n\t\tm.deadline = now\n",
	check: "^TestScripts$/^RingSkip$", pkg: "election/catalog", wantOutput: "TestScripts",
}, {
	description: "a coordinator that is on neither list is followed forever", file: "election/office/adopt.go",
	old: "if m.role == Follower && m.coordinator != election.None && !m.isMember(m.coordinator) {", new: "if false {",
	check: "^TestCoordinatorOnNoList", pkg: "election/office", wantOutput: "TestCoordinatorOnNoList",
}, {
	description: "the named successor claims the office in its predecessor's term", file: "election/office/campaign.go",
	old: "m.precedesHigherRank() {\n\t\tm.claim(term, out)",
	new: "m.precedesHigherRank() {\n\t\tm.claim(m.coordinatorTerm, out)", check: scheduleCheck, wantOutput: "tokens",
}, {
	description: "the office is not handed over to a higher process", file: "election/office/handover.go",
	old: "if m.cfg.Policy == NeverPreempt {", new: "if true {", check: scheduleCheck, wantOutput: "convergence",
}, {
	description: "processes with different member lists take the office from each other repeatedly",
	file:        "election/office/office.go",
	old:         "inner.NoPreemption = true", new: "inner.NoPreemption = false",
	check: "^TestLowerCoordinator", pkg: "election/office", wantOutput: "TestLowerCoordinator",
}, {
	description: "a grant to an earlier incarnation counts for the next", file: "election/office/claim.go",
	old: "msg.Term != m.term || msg.Hold.RequesterLife != m.cfg.Life {", new: "msg.Term != m.term {",
	check: "^Test(Grant|Claim|Late|EndOf|Resignation|Members|Messages)", pkg: "election/office", wantOutput: "FAIL",
}, {
	description: "a Stopped input of an earlier tenure ends this one", file: "election/office/step.go",
	old: "if in.Term == m.term {", new: "if true {",
	check: "^Test(Stopped|Successor|StepDown|OfficeIs)", pkg: "election/office", wantOutput: "FAIL",
}, {
	description: "a member of priority 0 is eligible", file: "election/office/eligibility.go",
	old: "return !s.eligibility.declared() && s.roster.Priority(s.cfg.Self) > 0", new: "return !s.eligibility.declared()",
	check: scheduleCheck, wantOutput: "membership",
}, {
	description: "a process that stepped down becomes eligible again though its application has died",
	file:        "election/office/eligibility.go",
	old:         "if m.eligibility == steppedDown {", new: "if true {", check: seedCheck, wantOutput: "membership",
}, {
	description: "Strict relies on the report that a process has ended", file: "election/office/suspect.go",
	old: "if m.cfg.Mode == Majority {", new: "if m.cfg.Mode != Available {",
	check: scheduleCheck, wantOutput: "one holder",
}, {
	description: "the application isn't notified of the end of its tenure", file: "election/office/hold.go",
	old: "\tout.Emit(election.TenureLost, m.term, m.cfg.Self)\n", new: "", check: scheduleCheck, wantOutput: "lapse",
}, {
	description: "the application is notified of the end of its tenure only with the next heartbeat",
	file:        "election/office/role.go",
	old:         "return min(m.beatAt, m.until())", new: "return m.beatAt", check: scheduleCheck, wantOutput: "lapse",
}, {
	description: "a step-down on request doesn't wait for the application", file: "election/office/handover.go",
	old:   "m.becomeDraining(peer, out)\n\tm.tenure.stepDownRequested = true",
	new:   "m.tenure.successor, m.tenure.stepDownRequested = peer, true\n\tm.resign(out)",
	check: scheduleCheck, wantOutput: "hand-over",
}, {
	description: "a process continues to probe when it has found a coordinator", file: "election/office/probe.go",
	old: "if m.coordinator != election.None && !m.mayTakeOver() {", new: "if false {",
	check: scheduleCheck, wantOutput: "convergence",
}, {
	description: "the end of any process is treated as the coordinator's", file: "election/office/suspect.go",
	old: "if m.takesForCoordinator(id) {\n", new: "if m.role == Follower {\n", check: scheduleCheck, wantOutput: "cause",
}, {
	description: "messages of an election are sent with the heartbeat", file: "election/office/hold.go",
	old:   "\tout.Send = append(out.Send, beat)\n",
	new:   "\tout.Send = append(out.Send, beat, election.Message{Kind: election.Stale, From: m.cfg.Self, To: to})\n",
	check: "^TestNoElectionWithoutFaults$", wantOutput: "counts",
}, {
	description: "a ring waits forever for an election that was lost on its way", file: "election/ring/ring.go",
	old: "\tif waits {\n", new: "\tif false && waits {\n", check: exploreCheck, wantOutput: "agreement",
}, {
	description: "a late report of the end of an earlier incarnation releases the grant of this one",
	file:        "election/office/suspect.go",
	old:         "m.ledger.ProcessEnded(grants.Holder{ID: id, Life: life}, m.now)",
	new:         "m.ledger.ProcessEnded(grants.Holder{ID: id, Life: max(life, m.peers[id].life)}, m.now)",
	check:       "^TestEndOfEarlierIncarnation", pkg: "election/office", wantOutput: "TestEndOfEarlierIncarnation",
}, {
	description: "a process hands over to one that was ready during an earlier tenure", file: "election/office/role.go",
	old: "m.peers[i].refusedClaim, m.peers[i].ready = false, false", new: "m.peers[i].refusedClaim = false",
	check: "^TestReadinessOfEarlierTenure", pkg: "election/office", wantOutput: "TestReadinessOfEarlierTenure",
}, {
	description: "a late grant names the latest incarnation, whichever requested it", file: "election/office/grant.go",
	old: "RequesterLife: r.Life,", new: "RequesterLife: m.peers[r.ID].life,",
	check: "^TestLateGrantNames", pkg: "election/office", wantOutput: "TestLateGrantNames",
}, {
	description: "no process campaigns when the coordinator is gone", file: "election/office/follow.go",
	old:   "\tif m.role == Follower {\n\t\tm.vacancy.campaignAt = m.now + m.campaignDelay()\n",
	new:   "\tif false {\n\t\tm.vacancy.campaignAt = m.now + m.campaignDelay()\n",
	check: "^TestEveryInterleavingOfOffices$/^Bully$", wantOutput: "agreement",
}, {
	description: "with a static graph, the office goes to a process without a majority",
	file:        "election/office/eligibility.go",
	old:         "case s.cfg.Mode == Available || s.coordinator != election.None && !s.mayTakeOver():", new: "case true:",
	check: eachFaultCheck + "/^graph$", wantOutput: "exchanges messages with a majority",
}, {
	description: "a slow process reports the end of its tenure late", file: "election/office/role.go",
	old: "return min(m.beatAt, m.until())", new: "return m.beatAt", check: eachFaultCheck + "/^slow$", wantOutput: "lapse",
}, {
	description: "in a long run, Strict relies on the report that a process has ended", file: "election/office/suspect.go",
	old: "if m.cfg.Mode == Majority {", new: "if m.cfg.Mode != Available {",
	check: eachFaultCheck + "/^deep$", wantOutput: "one holder",
}, {
	description: "Strict relies on a false report that a process has ended", file: "election/office/suspect.go",
	old: "if m.cfg.Mode == Majority {", new: "if m.cfg.Mode != Available {",
	check: "^TestStrictIgnoresFalseReports$", wantOutput: "one holder",
}, {
	description: "the simulator asks no process to step down", file: "sim/schedule.go",
	old: "if sch.faults&f != 0 {\n\t\t\tkinds", new: "if sch.faults&f != 0 && f != StepDown {\n\t\t\tkinds",
	check: "^TestEveryCombinationIsVisited$", wantOutput: "no stepdown affected a holder",
}}
