package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// agents answers: do all agents have a certificate and the right version, and what do they cost?
func agents() *dashboard.DashboardBuilder {
	const of = `{namespace=~"$namespace"}`
	ofAgents := func(expr string) string { return expr + ` and on (instance) conclave_build_info` + of }
	return newDashboard("conclave-agents", "Conclave / Agents", "The agents that Prometheus scrapes").
		WithVariable(variable("namespace", "Namespace", "label_values(conclave_build_info, namespace)", true)).
		WithRow(row("Now")).
		WithPanel(number("Agents", "That Prometheus scrapes", units.Short, series{`count(conclave_build_info` + of + `)`, ""}, dashboard.Threshold{Color: green})).
		WithPanel(number("Versions", "Of agents", units.Short, series{`count(count by (version) (conclave_build_info` + of + `))`, ""},
			dashboard.Threshold{Color: green}, dashboard.Threshold{Color: yellow, Value: new(2.0)})).
		WithPanel(number("Next expiry", "The certificate that expires first. Agents renew theirs when 8 of 24 hours are left", units.Seconds,
			series{`min(conclave_certificate_expiry_timestamp_seconds` + of + `) - time()`, ""}, lifeLeft(7*3600, 6*3600)...)).
		WithPanel(number("Knowing no coordinator", "Agents in groups of which they know no coordinator", units.Short,
			series{`sum(1 - conclave_coordinator_known` + of + `)`, ""}, zeroIsGood(red)...)).
		WithPanel(number("Dropped log lines", "In the last hour: nobody read the log fast enough", units.Short,
			series{`sum(increase(conclave_log_lines_dropped_total` + of + `[1h]))`, ""}, zeroIsGood(yellow)...)).
		WithPanel(number("False suspicions", "In the last hour: a live process was suspected", units.Short,
			series{`sum(increase(conclave_false_suspicions_total` + of + `[1h]))`, ""}, zeroIsGood(yellow)...)).
		WithRow(row("Versions and certificates")).
		WithPanel(list("Versions", "", series{`count by (namespace, version) (conclave_build_info` + of + `)`, ""})).
		WithPanel(graph("Time until certificates expire", "The ten that expire first", units.Seconds,
			series{`bottomk(10, min by (namespace, pod) (conclave_certificate_expiry_timestamp_seconds` + of + ` - time()))`, "{{namespace}}/{{pod}}"})).
		WithRow(row("Resources")).
		WithPanel(graph("CPU", "The ten agents that use most", units.Short,
			series{`topk(10, sum by (namespace, pod) (` + ofAgents(`rate(process_cpu_seconds_total`+of+`[$__rate_interval])`) + `))`, "{{namespace}}/{{pod}}"})).
		WithPanel(graph("Memory", "The ten agents that use most; the limit is 64 MiB", units.BytesIEC,
			series{`topk(10, sum by (namespace, pod) (` + ofAgents(`process_resident_memory_bytes`+of) + `))`, "{{namespace}}/{{pod}}"})).
		WithPanel(graph("Messages", "Of all agents", units.MessagesPerSecond,
			series{`sum(rate(conclave_messages_sent_total` + of + `[$__rate_interval]))`, "sent"},
			series{`sum(rate(conclave_messages_received_total` + of + `[$__rate_interval]))`, "received"})).
		WithPanel(graph("Goroutines", "The ten agents with most", units.Short,
			series{`topk(10, max by (namespace, pod) (` + ofAgents(`go_goroutines`+of) + `))`, "{{namespace}}/{{pod}}"}))
}
