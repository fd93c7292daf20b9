package sim_test

// recoveryCheck tests which answers count for the recovery.
const recoveryCheck = "^TestOnlyAnswersAfterWaitUnderSameListCountForRecovery$"

// termMutants are bugs in the choice and the recovery of terms.
var termMutants = []mutant{
	{
		description: "an answer to a probe that was sent before the wait counts for the recovery",
		file:        "election/office/forgotten.go",
		old:         "m.answersProbe(answer, m.ledger.RecoveryStart())", new: "m.answersProbe(answer, 0)",
		check: recoveryCheck, pkg: "election/office", wantOutput: "got 50 as the highest term",
	},
	{
		description: "an answer under another list counts for the recovery", file: "election/office/forgotten.go",
		old: "answer.Hold.Roster == m.roster.Version && ", new: "",
		check: recoveryCheck, pkg: "election/office", wantOutput: "got 50 as the highest term",
	},
	{
		description: "a hand-over that wasn't completed is repeated at once", file: "election/office/handover.go",
		old: ".notBefore = m.now + 4*m.claimTimeout()", new: ".notBefore = m.now",
		check: "^TestHandOverThatFailedIsntRepeatedSoon$", pkg: "election/office", wantOutput: "resignations",
	},
	{
		description: "renewals of a removed coordinator are ignored", file: "election/office/receive.go",
		old: "m.roster.Priority(beat.From) == 0 && !m.mayDrain(beat)", new: "m.roster.Priority(beat.From) == 0",
		check: "^TestRemovedCoordinatorHasItsDrainTime$", pkg: "election/office", wantOutput: "holders: got",
	},
	{
		description: "a process is ready for a term that others can't grant yet", file: "election/office/eligibility.go",
		old: "&& m.hasReached(id, term) })", new: "&& term > 0 })",
		check: "^TestProcessIsReadyWhenClocksOfMajorityAllowNextTerm$", pkg: "election/office",
		wantOutput: "ready: got true, want false",
	},
	{
		description: "a restarted process repeats its election although there is a coordinator",
		file:        "election/office/inner.go",
		old:         "			m.recovery.finish() //", new: "			//",
		check: "^TestRecoveryElectionUnderCoordinatorIsRepeatedOnce$", pkg: "election/office",
		wantOutput: "elections after the first one: got",
	},
	{
		description: "a process waits for the term that it needed at first", file: "election/office/campaign.go",
		old: "due > recheck {", new: "false && due > recheck {",
		check: "^TestLowerBoundEndsWaitForClock$", pkg: "election/office", wantOutput: "want one within three heartbeats",
	},
	{
		description: "any answer counts for the recovery of a bound", file: "election/office/forgotten.go",
		old: "return m.peers[id].recoveryBound, m", new: "return m.peers[id].bound, m",
		check: "^TestOtherAnswersDontLowerRecoveredBound$", pkg: "election/office", wantOutput: "want 50",
	},
	{
		description: "a process claims a term that the clocks of the others don't reach in time",
		file:        "election/office/claim.go",
		old:         "&& m.reaches(id, term, end) }", new: "}",
		check: "^TestClaimNeedsClocksOfMajority$", pkg: "election/office",
		wantOutput: "epoch 2010: got a claim of epoch 2045: true",
	},
	{
		description: "a coordinator hands over although a higher process hasn't answered yet",
		file:        "election/office/handover.go",
		old:         "!p.ready && begins && !p.ineligible:", new: "begins && false:",
		check: "^TestHandOverSkipsToHighestProcess$", pkg: "election/office",
		wantOutput: "got a request to stop after 1 ticks",
	},
	{
		description: "a process claims a term that its own clock doesn't reach", file: "election/office/claim.go",
		old: "m.cfg.Clock.Due(term) <= end && ", new: "",
		check: "^TestClaimAfterElectionNeedsOwnClock$", pkg: "election/office", wantOutput: "epoch 41: true",
	},
	{
		description: "a claim continues although the clocks of the others won't reach it", file: "election/office/claim.go",
		old: " && m.reaches(id, m.term, m.claimUntil())", new: "",
		check: "^TestClaimIsGivenUpIfClocksDontReachIt$", pkg: "election/office",
		wantOutput: "epoch 30: claim of epoch 40 given up within three heartbeats: got false",
	},
	{
		description: "a process ignores the clocks of those that have adopted its list", file: "election/office/adopt.go",
		old: "p.ceiling <= clock.ListFloor {", new: "p.ceiling > 0 {",
		check: "^TestClocksOfMembersThatAdoptedListFirst$", pkg: "election/office",
		wantOutput: "third one above it: got true",
	},
	{
		description: "a process expects clocks behind the floor to be as fast as its own", file: "election/term.go",
		old: "case epoch > c.ListFloor.Epoch():", new: "case false:",
		check: "^TestClaimNeedsClocksOfMajority$", pkg: "election/office",
		wantOutput: "floor of epoch 2020, clock that permits epoch 2022: got a claim of epoch 2027: true",
	},
	{
		description: "a process claims the term of an election although a majority may have granted a higher one",
		file:        "election/office/campaign.go",
		old:         "m.vacancy.attempts < maxAttempts ||", new: "term > 0 ||",
		check: seedCheck + "/too_low_for_a_member", wantOutput: "convergence",
	},
	{
		description: "a refusal doesn't tell the clock of the member", file: "election/office/grant.go",
		old: "if kind == election.Deny {", new: "if false {",
		check: "^TestRefusalTellsClockOfMember$", pkg: "election/office", wantOutput: "told 0",
	},
	{
		description: "a process defers to a claim whose process has crashed", file: "election/office/suspect.go",
		old: "m.endDeferral(id)", new: "_ = m.endDeferral",
		check: "^TestEndOfClaimNoLongerDelaysCampaign$", pkg: "election/office",
		wantOutput: "crashed: elections after the end of that claim: got 0",
	},
	{
		description: "answers to earlier incarnations count", file: "election/office/claim.go",
		old: "	if msg.Hold.RequesterLife != m.cfg.Life {\n		return\n	}\n	m.recordReport", new: "	m.recordReport",
		check: "^TestAnswerToEarlierIncarnationDoesntLowerFloor$", pkg: "election/office", wantOutput: "want",
	},
}
