package sim_test

// termMutants are bugs in the choice of terms, their reservation, and the identities of disks.
var termMutants = []mutant{{
	description: "a member grants terms that it hasn't reserved", file: "election/grants/ledger.go",
	old: "|| r.Term > l.reserved && !r.Held {\n\t\tl.deferRequest", new: "{\n\t\tl.deferRequest",
	check: scheduleCheck, wantOutput: "reservation",
}, {
	description: "a process claims terms that it hasn't reserved (Available)", file: "election/office/hold.go",
	old: "if m.role == Candidate && m.term > m.ledger.Reserved() {", new: "if false {",
	check: scheduleCheck, wantOutput: "reservation",
}, {
	description: "a process claims a term of a list that it doesn't have", file: "election/office/campaign.go",
	old: "return term.Version() == s.roster.Version", new: "return term.Version() >= s.roster.Version",
	check: scheduleCheck, wantOutput: "claims",
}, {
	description: "a list is stored without its first block of terms", file: "sim/disk.go",
	old: "election.FirstTerm(version)+election.Block)", new: "election.FirstTerm(version))",
	check: scheduleCheck, wantOutput: "reservation",
}, {
	description: "a member whose disk was lost votes", file: "election/office/grant.go",
	old: "if s.Forgetful() {\n\t\treturn grants.NoVote", new: "if false {\n\t\treturn grants.NoVote",
	check: scheduleCheck, wantOutput: "forgetful",
}, {
	description: "a member whose disk was replaced votes for its predecessor", file: "election/member.go",
	old: "before == r.Identity(id)", new: "before > 0", check: seedCheck + "/voted_before", wantOutput: "one holder",
}, {
	description: "a list names another disk within its version", file: "election/memberlist/memberlist.go",
	old: `if m.Identity == "" {`, new: `if f.Identity(m.Name) != "" {`, check: scheduleCheck, wantOutput: "identity",
}, {
	description: "a hand-over that wasn't completed is repeated at once", file: "election/office/handover.go",
	old: ".notBefore = m.now + 4*m.claimTimeout()", new: ".notBefore = m.now",
	check: "^TestHandOverThatFailedIsntRepeatedSoon$", pkg: "election/office", wantOutput: "resignations",
}, {
	description: "renewals of a removed coordinator are ignored", file: "election/office/receive.go",
	old: "m.roster.Priority(beat.From) == 0 && !m.mayDrain(beat)", new: "m.roster.Priority(beat.From) == 0",
	check: "^TestRemovedCoordinatorHasItsDrainTime$", pkg: "election/office", wantOutput: "holders: got",
}, {
	description: "a restarted process repeats its election although there is a coordinator",
	file:        "election/office/inner.go",
	old:         "			m.recovery.finish() //", new: "			//",
	check: "^TestRecoveryElectionUnderCoordinatorIsRepeatedOnce$", pkg: "election/office",
	wantOutput: "elections after the first one: got",
}, {
	description: "a coordinator hands over although a higher process hasn't answered yet",
	file:        "election/office/handover.go",
	old:         "!p.ready && begins && !p.ineligible:", new: "begins && false:",
	check: "^TestHandOverSkipsToHighestProcess$", pkg: "election/office",
	wantOutput: "got a request to stop after 1 ticks",
}, {
	description: "a process defers to a claim whose process has crashed", file: "election/office/suspect.go",
	old: "m.endDeferral(id)", new: "_ = m.endDeferral",
	check: "^TestEndOfClaimNoLongerDelaysCampaign$", pkg: "election/office",
	wantOutput: "crashed: elections after the end of that claim: got 0",
}, {
	description: "answers to earlier incarnations count", file: "election/office/claim.go",
	old: "	if msg.Hold.RequesterLife != s.cfg.Life {\n		return\n	}\n	s.recordReport", new: "	s.recordReport",
	check: "^TestAnswerToEarlierIncarnationDoesntLowerBound$", pkg: "election/office", wantOutput: "want",
}}
