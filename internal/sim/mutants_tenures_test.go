package sim_test

// tenureMutants make tenures short, or let short ones go on.
var tenureMutants = []mutant{{
	description: "a candidate acquires what it can't renew", file: "election/office/claim.go",
	old: "if !m.renewable() {", new: "if false {",
	check: "^TestNoTenureThatCannotBeRenewed$", pkg: "election/office", wantOutput: "tenures in a minute: got",
}, {
	description: "the office is handed over to a process that flaps", file: "election/office/handover.go",
	old: "|| p.flaps ||", new: "||",
	check: "^TestShortTenuresBecomeRare$/^5_fails,_always$", pkg: "election/office", wantOutput: "want at most 3",
}, {
	description: "processes that flap get the office in turn", file: "election/office/tenures.go",
	old: "min(s.tenures.last.since+s.cfg.longTenure(), r.HeldBackUntil+s.cfg.longestPenalty()))", new: "s.now)",
	check: "^TestShortTenuresBecomeRare$", pkg: "election/office", wantOutput: "want at most 3",
}, {
	description: "grants that can just be renewed suffice after lapses", file: "election/office/tenures.go",
	old: "return min(heartbeat*election.Tick(max(l.count-1, 0))/4, max(slack, 0)/2)", new: "return 0",
	check: "^TestDelaysThatVaryCauseFewTenures$", pkg: "election/office", wantOutput: "want at most 3",
}, {
	description: "grants must last for two heartbeats after lapses, whatever the lease is",
	file:        "election/office/tenures.go",
	old:         "max(slack, 0)/2)", new: "heartbeat)",
	check: "^TestFastNetworkIsFastEnoughAfterLapses$", pkg: "election/office", wantOutput: "got no coordinator for 4 s",
}, {
	description: "a process that stood still in Available mode keeps its tenure", file: "election/office/hold.go",
	old: "m.now >= m.request.sent+m.cfg.SuspicionTimeout+m.cfg.Heartbeat", new: "false",
	check: "^TestPausesInAvailableMode$", pkg: "election/office", wantOutput: "want at most 3",
}, {
	description: "a successor that doesn't succeed is named again", file: "election/office/tenures.go",
	old: "		m.tenures.lapsed = true\n", new: "		_ = named\n",
	check: "^TestSuccessorThatDoesNotSucceed$", pkg: "election/office", wantOutput: "want at most 4",
}, {
	description: "a process that flaps wins the next election", file: "election/office/campaign.go",
	old: " || m.precedesHigherRank() {", new: " {",
	check: "^TestHealthySuccessorDoesNotWait$", pkg: "election/office", wantOutput: "for two minutes, want 3",
}, {
	description: "lapses of a process that has just started count", file: "election/office/tenures.go",
	old: "recent := s.now < s.peers[id].startedAt+s.cfg.longTenure()/2", new: "recent := false",
	check: "^TestOverloadAtStartCostsNoPenalty$", pkg: "election/office", wantOutput: "for two minutes, want 5",
}, {
	description: "lapses of a process never count", file: "election/office/tenures.go",
	old: "recent := s.now < s.peers[id].startedAt+s.cfg.longTenure()/2", new: "recent := true",
	check: "^TestShortTenuresBecomeRare$/^5_pauses,_always$", pkg: "election/office", wantOutput: "want at most 3",
}, {
	description: "a step-down counts as a short tenure", file: "election/office/hold.go",
	old: "m.tenureEnds(m.cfg.Self, how)", new: "m.tenureEnds(m.cfg.Self, failed)",
	check: "^TestOperatorsDecide$", pkg: "election/office", wantOutput: "somebody flaps",
}, {
	description: "a long tenure doesn't end the penalty", file: "election/office/tenures.go",
	old: "case !short:\n\t\tr.Short = 0\n", new: "case !short:\n",
	check: "^TestPenaltyDoublesAndEndsAfterLongTenure$", pkg: "election/office", wantOutput: "want at once",
}, {
	description: "hand-overs go on after two lapses", file: "election/office/tenures.go",
	old: "t.handsOverAt = now + c.longTenure()", new: "t.handsOverAt = now",
	check: "^TestHandOversPauseAfterTwoLapses$", pkg: "election/office", wantOutput: "pause: got false",
}, {
	description: "a lapse after a pause of hand-overs counts as the first one", file: "election/office/tenures.go",
	old: "t.lapsedAt+2*c.longTenure()", new: "t.lapsedAt+c.longTenure()",
	check: "^TestHandOversPauseAfterTwoLapses$", pkg: "election/office", wantOutput: "pause: got false",
}, {
	description: "a coordinator that has fallen silent before doesn't lapse", file: "election/office/tenures.go",
	old: "t.last.ended, t.lapsed = false, false\n", new: "t.last.ended, t.lapsed = t.last.counted, false\n",
	check: "^TestCoordinatorThatIsHeardAgainHasNotLapsed$", pkg: "election/office", wantOutput: "lapsed",
}, {
	description: "the tenure with which a process starts is unknown", file: "election/office/office.go",
	old: "m.tenureBegins(c.Coordinator, c.Term, unknownStart)", new: "_ = m.tenures",
	check: "^TestHandOversPauseAfterTwoLapses$", pkg: "election/office", wantOutput: "pause: got false",
}, {
	description: "a process that was killed doesn't remember that it led", file: "election/office/tenures.go",
	old: "t.own.end(crashed, c, c.Start)", new: "_ = crashed",
	check: "^TestShortTenuresBecomeRare$/^5_crashes,_always$", pkg: "election/office", wantOutput: "want at most 3",
}, {
	description: "a process doesn't declare that it flaps", file: "election/office/office.go",
	old: "Hold.Flaps = m.flaps(m.cfg.Self)", new: "Hold.Flaps = false",
	check: "^TestKillsInARow$", pkg: "election/office", wantOutput: "without a coordinator",
}, {
	description: "the coordinator doesn't tell who flaps", file: "election/office/hold.go",
	old: "return p.flaps && !p.ineligible", new: "return false",
	check: "^TestKillsInARow$", pkg: "election/office", wantOutput: "without a coordinator",
}, {
	description: "the first process that flaps no more gets the office", file: "election/office/eligibility.go",
	old: "max(p.notBefore, m.now+m.cfg.Heartbeat)", new: "max(p.notBefore, m.now)",
	check: "^TestShortTenuresBecomeRare$", pkg: "election/office", wantOutput: "want at most 20",
}, {
	description: "a lapse during a hand-over isn't reported", file: "election/office/tenures.go",
	old: "m.role == Draining && m.now < m.until() ||", new: "m.role == Draining ||",
	check: "^TestLapseDuringHandOverIsReported$", pkg: "election/office", wantOutput: "reports a lapse: got false",
}}
