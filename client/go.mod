module github.com/conclave-dev/conclave/client

go 1.23
