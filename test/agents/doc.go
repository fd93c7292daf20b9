// Package agents tests real agents, as processes, from the outside: what
// applications rely on must hold while everything that can befall a process or
// a network does.
package agents
