package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// groups answers: is any group in trouble, and which?
func groups() *dashboard.DashboardBuilder {
	const of = `{namespace=~"$namespace"}`
	return newDashboard("conclave-groups", "Conclave / Groups", "All groups, as the leader of the operator sees them").
		WithVariable(variable("namespace", "Namespace", "label_values(conclave_operator_group_coordinator, namespace)", true)).
		WithRow(row("Health")).
		WithPanel(number("Groups", "", units.Short, series{`count(max by (namespace, group) (conclave_operator_group_coordinator` + of + `))`, ""},
			dashboard.Threshold{Color: green})).
		WithPanel(number("Without a coordinator", "Their applications do nothing that needs a coordinator", units.Short,
			series{`sum(1 - max by (namespace, group) (conclave_operator_group_coordinator` + of + `))`, ""}, zeroIsGood(red)...)).
		WithPanel(number("Two coordinators", "Agents name different coordinators", units.Short,
			series{`sum(max by (namespace, group) (conclave_operator_group_coordinators_differ` + of + `))`, ""}, zeroIsGood(red)...)).
		WithPanel(number("Status behind", "Agents use a newer member list than the status", units.Short,
			series{`sum(max by (namespace, group) (conclave_operator_group_status_behind` + of + `))`, ""}, zeroIsGood(red)...)).
		WithPanel(number("Agents not connected", "", units.Short,
			series{`sum(max by (namespace, group) (conclave_operator_agents_expected` + of + ` - conclave_operator_agents_connected` + of + `))`, ""},
			zeroIsGood(yellow)...)).
		WithPanel(number("Elections", "In the last hour", units.Short,
			series{`sum(increase(conclave_operator_elections_total` + of + `[1h]))`, ""}, dashboard.Threshold{Color: green})).
		WithPanel(list("Groups without a coordinator", "", series{
			`max by (namespace, group) (conclave_operator_group_coordinator` + of + `) == 0`, "",
		})).
		WithPanel(list("Groups with agents that aren't connected", "", series{
			`max by (namespace, group) (conclave_operator_agents_expected` + of + ` - conclave_operator_agents_connected` + of + `) > 0`, "",
		})).
		WithPanel(list("Groups by elections", "In the last hour", series{
			`topk(20, sum by (namespace, group) (increase(conclave_operator_elections_total` + of + `[1h])))`, "",
		})).
		WithRow(row("Elections")).
		WithPanel(bars("Elections", "The ten groups with most of them",
			series{`topk(10, sum by (namespace, group) (increase(conclave_operator_elections_total` + of + `[$__rate_interval])))`, "{{namespace}}/{{group}}"})).
		WithPanel(graph("Time without a coordinator", "As the operator observes it, for all groups", units.Seconds,
			quantiles("conclave_operator_failover_seconds", "")...)).
		WithPanel(graph("Delay of the status", "From a change at an agent until the status shows it, for all groups", units.Seconds,
			quantiles("conclave_operator_status_lag_seconds", "")...)).
		WithPanel(graph("Connected agents", "", units.Short,
			series{`sum(max by (namespace, group) (conclave_operator_agents_expected` + of + `))`, "members"},
			series{`sum(max by (namespace, group) (conclave_operator_agents_connected` + of + `))`, "connected"}))
}

// quantiles are the median and the 99th percentile of a histogram.
func quantiles(histogram, selector string) []series {
	expr := func(q string) string {
		return `histogram_quantile(` + q + `, sum by (le) (rate(` + histogram + `_bucket` + selector + `[$__rate_interval])))`
	}
	return []series{{expr("0.5"), "median"}, {expr("0.99"), "p99"}}
}
