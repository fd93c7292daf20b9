package sim_test

// electionMutants are bugs of the elections.
var electionMutants = []mutant{{
	description: "bully: the winner announces for every ELECTION", file: "election/bully/bully.go",
	old: "if m.phase != idle || m.announced == m.Term || m.KnowsCoordinatorOf(m.Term) {", new: "if m.phase != idle {",
	check: countCheck + "/^Bully$", pkg: "election/catalog", wantOutput: "Bully",
}, {
	description: "bully: the only process above is asked though it is dead", file: "election/process.go",
	old: "if m.ID != dead && !p.Suspects.Has(m.ID) {", new: "if !p.Suspects.Has(m.ID) {",
	check: countCheck + "/^Bully$", pkg: "election/catalog", wantOutput: "Bully",
}, {
	description: "status table: a process that doesn't answer isn't marked", file: "election/statustable/statustable.go",
	old: "\tcase asking:\n\t\tm.markCrashed(m.asked, out)\n", new: "\tcase asking:\n",
	check: "^TestScripts$/^StatusTable$", pkg: "election/catalog", wantOutput: "TestScripts",
}, {
	description: "all identifiers: forwards before it sends its own", file: "election/ring/allids.go",
	old: "if m.Eligible() && m.ownTerm != m.Term {\n",
	new: "if m.Eligible() && m.ownTerm != m.Term " +
		"{\n\t\tm.forward(msg, out)\n\t\tr.sendOwn(m, out)\n\t\tm.collected.Add(msg.Origin)\n\t\treturn\n",
	check: countCheck + "/^RingAllIDs$", pkg: "election/catalog", wantOutput: "RingAllIDs",
}, {
	description: "champion: a lower identifier isn't dropped", file: "election/ring/champion.go",
	old: "case m.ownTerm != m.Term:\n\t\tm.sendOwn(", new: "default:\n\t\tm.sendOwn(",
	check: "^TestScripts$/^RingChampion$", pkg: "election/catalog", wantOutput: "TestScripts",
}, {
	description: "active list: forwards before it sends its own", file: "election/ring/activelist.go",
	old: "if m.Eligible() && m.ownTerm != m.Term {\n",
	new: "if m.Eligible() && m.ownTerm != m.Term " +
		"{\n\t\tm.forward(msg, out)\n\t\tr.sendOwn(m, out)\n\t\tm.collected.Add(msg.Origin)\n\t\treturn\n",
	check: "^TestScripts$/^RingActiveList$", pkg: "election/catalog", wantOutput: "TestScripts",
}, {
	description: "skip: the lowest process on the list is announced", file: "election/member.go",
	old: "if r.Outranks(other, id) {", new: "if r.Outranks(id, other) {",
	check: countCheck + "/^RingSkip$", pkg: "election/catalog", wantOutput: "RingSkip",
}, {
	description: "champion: an identifier that comes back twice is announced twice", file: "election/ring/champion.go",
	old: " && !announced {", new: " && (true || announced) {",
	check: "^TestScripts$/^RingChampion$", pkg: "election/catalog", wantOutput: "TestScripts",
}}
