// Pins the kinds of others that config/ has objects of: their CRDs are in these modules. What is named as a tool is any
// package of each that needs nothing else, so that nothing else is pinned.
module github.com/conclave-dev/conclave/test/manifests/kinds

go 1.26.0

tool (
	github.com/cert-manager/cert-manager/pkg/apis
	github.com/prometheus-operator/prometheus-operator/example/alertmanager-webhook
)

require (
	github.com/cert-manager/cert-manager v1.21.2 // indirect
	github.com/prometheus-operator/prometheus-operator v0.85.0 // indirect
)
