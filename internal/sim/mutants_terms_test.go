package sim_test

// termMutants are bugs in the choice and the recovery of terms.
var termMutants = []mutant{
	{
		description: "a process is ready for a term that others can't grant yet", file: "election/office/eligibility.go",
		old: "p.ceiling >= term)", new: "true)",
		check: "^TestProcessIsReadyWhenClocksOfMajorityAllowNextTerm$", pkg: "election/office", wantOutput: "got ready true, want false",
	},
	{
		description: "a restarted process repeats its election although there is a coordinator", file: "election/office/inner.go",
		old: "			m.recovery.finish() //", new: "			//",
		check: "^TestRecoveryElectionUnderCoordinatorIsRepeatedOnce$", pkg: "election/office", wantOutput: "elections after the first one, want 1",
	},
	{
		description: "a process gives up its claim when it wins an election in a newer term", file: "election/office/inner.go",
		old: "if m.cfg.Mode != Available && m.claimStands() {", new: "if false {",
		check: "^TestClaimContinuesAfterElectionInNewerTerm$", pkg: "election/office", wantOutput: "want the claimed one",
	},
	{
		description: "a process claims the term of an election that a majority can't grant yet", file: "election/office/inner.go",
		old: "m.claim(min(max(status.Term, m.support.Floor()+1), m.nextTerm()), out)", new: "m.claim(max(status.Term, m.support.Floor()+1), out)",
		check: "^TestFailoverDoesntWaitForTermOfRecovery$", pkg: "election/office", wantOutput: "want less than two seconds",
	},
	{
		description: "a process claims the term of an election below the floor of its list", file: "election/office/inner.go",
		old: "max(status.Term, m.support.Floor()+1)", new: "status.Term",
		check: seedCheck, wantOutput: "convergence",
	},
	{
		description: "a process keeps a claim under an older list than the others have", file: "election/office/grant.go",
		old: "m.sendAnswer(election.Deny, m.requestOf(msg), msg.Term, out)", new: "m.sendAnswer(election.Deny, m.requestOf(msg), 0, out)",
		check: seedCheck, wantOutput: "convergence",
	},
	{
		description: "an answer that is older than what a process learned makes that false", file: "election/office/recover.go",
		old: "	m.vacancy.since = m.now //", new: "	//",
		check: seedCheck, wantOutput: "terms",
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
		description: "answers to earlier incarnations count", file: "election/office/claim.go",
		old: "	if msg.Hold.RequesterLife != m.cfg.Life {\n		return\n	}\n	m.recordBound", new: "	m.recordBound",
		check: "^TestAnswerToEarlierIncarnationDoesntLowerFloor$", pkg: "election/office", wantOutput: "want",
	},
}
