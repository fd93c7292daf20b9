// Package agents tests the guarantees that agents give to applications. The agents run as
// processes, while the tests inject faults into processes and the network.
package agents
