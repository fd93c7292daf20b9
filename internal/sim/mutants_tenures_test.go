package sim_test

// tenureMutants make tenures short, or let short ones go on.
var tenureMutants = []mutant{{
	description: "a candidate acquires what it can't renew", file: "election/office/claim.go",
	old: "if !m.renewable() {", new: "if false {",
	check: "^TestNoTenureThatCannotBeRenewed$", pkg: "election/office", wantOutput: "tenures in a minute: got",
}, {
	description: "the office is handed over to a process that flaps", file: "election/office/tenures.go",
	old: "r.short < 2 || now >= r.heldBackUntil+c.longestPenalty() {\n", new: "r.short >= 0 {\n",
	check: "^TestShortTenuresBecomeRare$/^5_fails,_always$", pkg: "election/office", wantOutput: "want at most 3",
}, {
	description: "processes that flap get the office in turn", file: "election/office/tenures.go",
	old: "t.handsOverAt, t.records[coordinator].since+c.longTenure())", new: "t.handsOverAt)",
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
	old: "named != election.None && named != actual", new: "false",
	check: "^TestSuccessorThatDoesNotSucceedIsHeldBack$", pkg: "election/office", wantOutput: "want at most 4",
}, {
	description: "a process that flaps wins the next election", file: "election/office/campaign.go",
	old: " || m.precedesHigherRank() {", new: " {",
	check: "^TestHealthySuccessorDoesNotWait$", pkg: "election/office", wantOutput: "for a minute, want 3",
}, {
	description: "lapses of a process that has just started count", file: "election/office/tenures.go",
	old: "return now < r.startedAt+c.longTenure()/2", new: "return false",
	check: "^TestOverloadAtStartCostsNoPenalty$", pkg: "election/office", wantOutput: "for a minute, want 5",
}, {
	description: "lapses of a process never count", file: "election/office/tenures.go",
	old: "return now < r.startedAt+c.longTenure()/2", new: "return true",
	check: "^TestShortTenuresBecomeRare$/^5_pauses,_always$", pkg: "election/office", wantOutput: "want at most 3",
}, {
	description: "a step-down counts as a short tenure", file: "election/office/follow.go",
	old: "m.tenures.end(msg.From, how,", new: "m.tenures.end(msg.From, failed,",
	check: "^TestOperatorsDecide$", pkg: "election/office", wantOutput: "for a minute, want 5",
}, {
	description: "a long tenure doesn't end the penalty", file: "election/office/tenures.go",
	old: "r.short, r.heldBackUntil = 0, now\n", new: "r.heldBackUntil = now\n",
	check: "^TestPenaltyDoublesAndEndsAfterLongTenure$", pkg: "election/office", wantOutput: "for a minute, want 5",
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
	old: "r.ended, t.lapsed = false, false\n", new: "r.ended, t.lapsed = r.counted, false\n",
	check: "^TestCoordinatorThatIsHeardAgainHasNotLapsed$", pkg: "election/office", wantOutput: "lapsed",
}, {
	description: "the tenure with which a process starts is unknown", file: "election/office/office.go",
	old: "m.tenures.begin(c.Coordinator, c.Term, unknownStart, &m.cfg, m.now)", new: "_ = m.tenures",
	check: "^TestHandOversPauseAfterTwoLapses$", pkg: "election/office", wantOutput: "pause: got false",
}, {
	description: "a process that flaps claims the office that an election gives it", file: "election/office/inner.go",
	old: "mayClaim && !m.awaitTurn() {", new: "mayClaim {",
	check: "^TestProcessThatFlapsAwaitsItsTurnOnly$", pkg: "election/office", wantOutput: "want at least 125",
}, {
	description: "a process that flaps waits for its usual campaign", file: "election/office/tenures.go",
	old: "m.vacancy.campaignAt = min(m.vacancy.campaignAt, m.now+delay)", new: "m.vacancy.campaignAt += 0",
	check: "^TestProcessThatFlapsAwaitsItsTurnOnly$", pkg: "election/office", wantOutput: "at most 325",
}, {
	description: "a lapse during a hand-over isn't reported", file: "election/office/tenures.go",
	old: "m.role == Draining && m.now < m.until() ||", new: "m.role == Draining ||",
	check: "^TestLapseDuringHandOverIsReported$", pkg: "election/office", wantOutput: "reports a lapse: got false",
}}
