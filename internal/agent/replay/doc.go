// Package replay records all inputs and outputs of a group's machine, and replays them.
//
// The machine of package office is deterministic: the same inputs result in the same
// outputs. A recorded election of real agents can therefore be repeated step by step.
// Replay does this and compares the outputs byte for byte. A difference means that
// something other than the recorded inputs has influenced the machine.
//
// A trace is a file of JSON lines. The first line has the configuration, and each
// further line has one step. Only the version of the program that wrote a trace can
// replay it: another version may behave differently.
package replay
