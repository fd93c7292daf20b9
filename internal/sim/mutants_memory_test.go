package sim_test

// memoryMutants are bugs in what a process remembers of its grants over a restart.
var memoryMutants = []mutant{{
	description: "a restarted member forgets until when it has granted", file: "election/grants/memory.go",
	old: " until: m.Until,", new: "", check: "^TestSchedulesWithRecovery$", wantOutput: "one holder",
}, {
	description: "a restarted member forgets the highest term that it has granted", file: "election/grants/memory.go",
	old: "highestGranted: m.HighestGranted,", new: "", check: "^TestSchedulesWithRecovery$", wantOutput: "tokens",
}, {
	description: "a restarted process releases its own grant in Strict", file: "election/office/config.go",
	old: "c.Mode == Majority && holder.ID == c.Self", new: "holder.ID == c.Self",
	check: "^TestRestartedCoordinatorReleasesItsOwnGrant$", pkg: "election/office", wantOutput: "after the restart",
}, {
	description: "a restarted member reports a new list while grants under the old one are in force",
	file:        "election/office/config.go",
	old:         "	l.Adopt(c.Roster.Version)\n	if holder", new: "	if holder",
	check: "^TestRestartedMemberReportsNewList", pkg: "election/office", wantOutput: "as adopted",
}}
