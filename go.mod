module github.com/conclave-dev/conclave

go 1.26.0

require github.com/cockroachdb/datadriven v1.0.2

require github.com/pmezard/go-difflib v1.0.0 // indirect
