// Package client has the tests of the Go client with real agents. The module of the client has no dependencies, so they are here.
package client
