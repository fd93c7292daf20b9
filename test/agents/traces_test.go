package agents

// checkTraces kills all agents, and repeats the elections that they have recorded.
func (g *testGroup) checkTraces() {
	g.t.Helper()
	g.check(g.Kill())
	allSteps, allTenures := 0, 0
	for _, group := range g.Groups() {
		steps, tenures, err := g.CheckTraces(group)
		if err != nil {
			g.t.Errorf("trace of group %s: %v", group, err)
		} else if tenures == 0 {
			g.t.Errorf("trace of group %s: got no tenure in %d steps", group, steps)
		}
		allSteps, allTenures = allSteps+steps, allTenures+tenures
	}
	g.t.Logf("repeated %d steps with %d tenures", allSteps, allTenures)
}
