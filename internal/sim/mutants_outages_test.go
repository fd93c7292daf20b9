package sim_test

const outageCheck = "^TestOutagesAreShort$"

// outageMutants make outages longer, or more frequent.
var outageMutants = []mutant{{
	description: "a process that learns that the coordinator has ended waits for its silence",
	file:        "election/office/follow.go",
	old:         "\tif m.role == Follower {\n\t\tm.vacancy.campaignAt = m.now + m.campaignDelay()\n",
	new:         "\tif m.role == Follower {\n\t\tm.vacancy.campaignAt = m.now + m.campaignDelay() + m.cfg.Lease/2\n",
	check:       outageCheck + "/^crash$/^Available$", wantOutput: "crash: got p99",
}, {
	description: "a process acquires the office with grants that expire before they can be renewed",
	file:        "election/office/claim.go",
	old: "return m.cfg.Mode == Available || m.until()-m.now > interval+m.tenures.lapses.margin(interval, " +
		"m.grantsLast()-interval)",
	new: "return interval > 0", check: seedCheck + "/renew", wantOutput: "flapping",
}, {
	description: "tenures that were short are forgotten, and a failing application leads again",
	file:        "election/office/tenures.go",
	old:         "if !r.Leading {", new: "if r.Short >= 0 {",
	check: seedCheck + "/fails_each", wantOutput: "flapping",
}, {
	description: "members don't renew the tenure of a coordinator that a list has removed",
	file:        "election/office/receive.go",
	old:         "return before != nil && before.Priority(beat.From) > 0 &&",
	new:         "return false && before != nil && before.Priority(beat.From) > 0 &&",
	check:       seedCheck + "/drain", wantOutput: "drain",
}, {
	description: "the next list doesn't wait for a coordinator that drains", file: "election/memberlist/memberlist.go",
	old: "case f.Draining:", new: "case false:", check: seedCheck + "/second_list", wantOutput: "drain",
}, {
	description: "a process that has stepped down isn't eligible for the stable period",
	file:        "election/office/handover.go",
	old:         "m.eligibleAgainAt = m.now + m.claimTimeout()",
	new:         "m.eligibleAgainAt = m.now + max(m.cfg.StablePeriod, m.claimTimeout())",
	check:       seedCheck + "/stepped_down", wantOutput: "outage",
}, {
	description: "a coordinator that is removed renews its tenure a heartbeat later", file: "election/office/adopt.go",
	old: "case m.role >= Holder:", new: "case m.role == Holder:",
	check: seedCheck + "/renews_only_a_heartbeat_after", wantOutput: "drain",
}, {
	description: "each process has one backoff for all attempts", file: "election/office/vacancy.go",
	old: " ^ uint64(max(m.claimedTerm, m.highestTerm)))", new: ")",
	check: seedCheck + "/equal_delays", wantOutput: "outage",
}}
