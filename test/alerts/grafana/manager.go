package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// manager answers: does the operator work, what does it refuse, and what is refused to it?
func manager() *dashboard.DashboardBuilder {
	ofManager := func(expr string) string {
		return `sum by (instance) (` + expr + ` and on (instance) conclave_operator_build_info)`
	}
	return newDashboard("conclave-manager", "Conclave / Manager", "The replicas of the operator").
		WithRow(row("Now")).
		WithPanel(number("Replicas", "", units.Short, series{`count(conclave_operator_build_info)`, ""},
			dashboard.Threshold{Color: red}, dashboard.Threshold{Color: yellow, Value: new(1.0)}, dashboard.Threshold{Color: green, Value: new(2.0)})).
		WithPanel(names("Leader", "Only the leader has the metrics of groups",
			series{`leader_election_master_status{name="conclave-manager"} == 1`, "{{pod}}"})).
		WithPanel(names("Version", "", series{`count by (version) (conclave_operator_build_info)`, "{{version}}"})).
		WithPanel(number("CA expires in", "The next CA signs about 28 days before", units.Seconds,
			series{`min(conclave_operator_certificate_expiry_timestamp_seconds{certificate="ca"}) - time()`, ""}, lifeLeft(28*86400, 21*86400)...)).
		WithRow(row("Requests of agents and of the API server")).
		WithPanel(bars("Enrollments", "Requests for certificates, by result",
			series{`sum by (result) (increase(conclave_operator_enrollments_total[$__rate_interval]))`, "{{result}}"})).
		WithPanel(bars("Injections", "Requests to add an agent to a new pod, by result",
			series{`sum by (result) (increase(conclave_operator_injections_total{result!="unchanged"}[$__rate_interval]))`, "{{result}}"})).
		WithPanel(bars("Refused writes", "By resource and HTTP status",
			series{`sum by (resource, code) (increase(conclave_operator_writes_refused_total[$__rate_interval]))`, "{{resource}} {{code}}"})).
		WithPanel(graph("Time until certificates expire", "Each replica has its own, except for the CA", units.Seconds,
			series{`min by (certificate) (conclave_operator_certificate_expiry_timestamp_seconds{certificate!="ca"} - time())`, "{{certificate}}"})).
		WithRow(row("Work")).
		WithPanel(graph("Connected agents", "Of each replica; all should have all agents", units.Short,
			series{`sum by (instance) (conclave_operator_streams_connected)`, "{{instance}}"})).
		WithPanel(graph("Reconciles of groups", "If it doesn't become 0, a group doesn't settle", units.OpsPerSecond,
			series{`sum by (instance) (rate(conclave_operator_reconciles_total[$__rate_interval]))`, "completed {{instance}}"},
			series{`sum by (controller) (rate(controller_runtime_reconcile_errors_total[$__rate_interval]) and on (instance) conclave_operator_build_info)`, "errors {{controller}}"})).
		WithPanel(graph("Delay of the status", "From a change at an agent until the status shows it", units.Seconds,
			quantiles("conclave_operator_status_lag_seconds", "")...)).
		WithPanel(graph("Requests to the API server", "By method and HTTP status", units.RequestsPerSecond,
			series{`sum by (method, code) (rate(rest_client_requests_total[$__rate_interval]) and on (instance) conclave_operator_build_info)`, "{{method}} {{code}}"})).
		WithRow(row("Resources")).
		WithPanel(graph("CPU", "", units.Short, series{ofManager(`rate(process_cpu_seconds_total[$__rate_interval])`), "{{instance}}"})).
		WithPanel(graph("Memory", "The limit is 512 MiB", units.BytesIEC, series{ofManager(`process_resident_memory_bytes`), "{{instance}}"}))
}
