// Package trace records all inputs and outputs of a group's machine.
//
// The machine of package office is deterministic: the same inputs result in the same
// outputs. A recorded election of real agents can therefore be repeated step by step:
// see internal/testing/replay.
//
// A trace is a file of JSON lines. The first line has the configuration, and each
// further line has one step. Only the version of the program that wrote a trace can
// replay it: another version may behave differently.
package trace
