// This module pins the versions of the CRDs whose objects config/ contains. The CRDs are files in the required modules. Each
// tool is a package of such a module that has no further dependencies, so that the module graph contains nothing else.
module github.com/conclave-dev/conclave/test/manifests/crds

go 1.26.0

tool github.com/prometheus-operator/prometheus-operator/example/alertmanager-webhook

require github.com/prometheus-operator/prometheus-operator v0.85.0 // indirect
