module github.com/conclave-dev/conclave

go 1.26.0
