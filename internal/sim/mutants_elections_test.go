package sim_test

// electionMutants are bugs of the elections.
var electionMutants = []mutant{
	{
		description: "bully: the winner announces for every ELECTION", file: "election/bully/bully.go",
		old: "if m.phase != idle || m.announced == m.Term || m.KnowsCoordinatorOf(m.Term) {", new: "if m.phase != idle {",
		check: countCheck + "/^Bully$", wantOutput: "Bully",
	},
	{
		description: "bully: the only process above is asked though it is dead", file: "election/process.go",
		old: "if m.ID != dead && !p.Suspects.Has(m.ID) {", new: "if !p.Suspects.Has(m.ID) {",
		check: countCheck + "/^Bully$", wantOutput: "Bully",
	},
	{
		description: "status table: a process that doesn't answer isn't marked", file: "election/statustable/statustable.go",
		old: "\tcase asking:\n\t\tm.markCrashed(m.asked, out)\n", new: "\tcase asking:\n",
		check: "^TestScripts$/^StatusTable$", pkg: "election/catalog", wantOutput: "TestScripts",
	},
	{
		description: "all identifiers: forwards before it sends its own", file: "election/ringallids/ringallids.go",
		old: "if m.Eligible() && m.OwnTerm != m.Term {\n", new: "if m.Eligible() && m.OwnTerm != m.Term {\n\t\tm.Forward(out, *msg)\n\t\tm.sendOwn(out)\n\t\tm.collected.Add(msg.Origin)\n\t\treturn\n",
		check: countCheck + "/^RingAllIDs$", wantOutput: "RingAllIDs",
	},
	{
		description: "champion: a lower identifier isn't dropped", file: "election/ringchampion/ringchampion.go",
		old: "case m.OwnTerm != m.Term:\n\t\tm.sendOwn(out)", new: "default:\n\t\tm.sendOwn(out)",
		check: "^TestScripts$/^RingChampion$", pkg: "election/catalog", wantOutput: "TestScripts",
	},
	{
		description: "active list: forwards before it sends its own", file: "election/ringactivelist/ringactivelist.go",
		old: "if m.Eligible() && m.OwnTerm != m.Term {\n", new: "if m.Eligible() && m.OwnTerm != m.Term {\n\t\tm.Forward(out, *msg)\n\t\tm.sendOwn(out)\n\t\tm.active.Add(msg.Origin)\n\t\treturn\n",
		check: "^TestScripts$/^RingActiveList$", pkg: "election/catalog", wantOutput: "TestScripts",
	},
	{
		description: "skip: the lowest process on the list is announced", file: "election/member.go",
		old: "if r.Outranks(other, id) {", new: "if r.Outranks(id, other) {",
		check: countCheck + "/^RingSkip$", wantOutput: "RingSkip",
	},
	{
		description: "skip: a list that comes back twice is announced twice", file: "election/ringskip/ringskip.go",
		old: "	m.OwnTerm = 0\n", new: "",
		check: seedCheck, wantOutput: "progress",
	},
	{
		description: "champion: an identifier that comes back twice is announced twice", file: "election/ringchampion/ringchampion.go",
		old: " || announced {", new: " || false && announced {",
		check: "^TestScripts$/^RingChampion$", pkg: "election/catalog", wantOutput: "TestScripts",
	},
}
