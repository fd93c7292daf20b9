package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// group answers: who leads this group, and why did the coordinator change? Most of it comes from the agents.
func group() *dashboard.DashboardBuilder {
	const of = `{namespace="$namespace", group="$group"}`
	return newDashboard("conclave-group", "Conclave / Group", "One group, as the operator and its agents see it").
		WithVariable(variable("namespace", "Namespace", "label_values(conclave_operator_group_coordinator, namespace)", false)).
		WithVariable(variable("group", "Group", `label_values(conclave_operator_group_coordinator{namespace="$namespace"}, group)`, false)).
		WithRow(row("Now")).
		WithPanel(number("Coordinator", "1 if the operator sees one", units.Short,
			series{`max(conclave_operator_group_coordinator` + of + `)`, ""}, oneIsGood()...)).
		WithPanel(names("Leading", "The agents that hold the office", series{`conclave_leading` + of + ` == 1`, "{{pod}}"})).
		WithPanel(number("Members", "", units.Short, series{`max(conclave_operator_agents_expected` + of + `)`, ""}, dashboard.Threshold{Color: green})).
		WithPanel(number("Not connected", "", units.Short,
			series{`max(conclave_operator_agents_expected` + of + ` - conclave_operator_agents_connected` + of + `)`, ""}, zeroIsGood(yellow)...)).
		WithPanel(number("Agreed", "0 while agents disagree about coordinator, member list or settings", units.Short,
			series{`min(conclave_operator_group_agreed` + of + `)`, ""}, oneIsGood()...)).
		WithRow(row("Elections")).
		WithPanel(graph("Coordinator", "1 while the agent of the pod holds the office", units.Short, series{`max by (pod) (conclave_leading` + of + `)`, "{{pod}}"})).
		WithPanel(bars("Elections by cause", "Why there was no coordinator before: the highest count of any agent",
			series{`max by (cause) (increase(conclave_elections_total` + of + `[$__rate_interval]))`, "{{cause}}"})).
		WithPanel(graph("Detection of a failure", "From the last message of a coordinator until it was suspected", units.Seconds,
			quantiles("conclave_detection_seconds", of)...)).
		WithPanel(graph("Election", "From the vacancy until an agent knows the next coordinator", units.Seconds, quantiles("conclave_election_seconds", of)...)).
		WithPanel(graph("Tenures that ended", "How long processes were coordinators", units.Seconds, quantiles("conclave_tenure_seconds", of)...)).
		WithPanel(graph("Terms behind the newest", "An agent whose value isn't 0 has missed an election", units.Short,
			series{`scalar(max(conclave_term` + of + `)) - max by (pod) (conclave_term` + of + `)`, "{{pod}}"})).
		WithRow(row("Messages")).
		WithPanel(graph("Messages sent, by kind", "", units.MessagesPerSecond,
			series{`sum by (kind) (rate(conclave_messages_sent_total` + of + `[$__rate_interval]))`, "{{kind}}"})).
		WithPanel(bars("Suspicions", "False ones: the peer sent a message again as the same process",
			series{`sum(increase(conclave_suspicions_total` + of + `[$__rate_interval]))`, "all"},
			series{`sum(increase(conclave_false_suspicions_total` + of + `[$__rate_interval]))`, "false"})).
		WithPanel(graph("Interval of heartbeats", "It changes if the timing adapts", units.Seconds,
			series{`max by (pod) (conclave_heartbeat_seconds` + of + `)`, "{{pod}}"})).
		WithPanel(graph("Answers to heartbeats", "From a heartbeat of the coordinator to the answer of a member", units.Seconds,
			quantiles("conclave_answer_seconds", of)...)).
		WithPanel(bars("Messages not used", "Refused: invalid, or another configuration. Outdated: of an earlier term. Dropped: too many others waited",
			series{`sum(increase(conclave_messages_refused_total` + of + `[$__rate_interval]))`, "refused"},
			series{`sum(increase(conclave_messages_outdated_total` + of + `[$__rate_interval]))`, "outdated"},
			series{`sum(increase(conclave_messages_dropped_total` + of + `[$__rate_interval]))`, "dropped"}))
}
