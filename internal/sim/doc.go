// Package sim runs elections on a virtual network and clock.
//
// A Scenario is one election of the textbook: who is down, who starts, how many
// messages it takes. Sample runs schedules drawn from a seed, in which anything
// may go wrong that the named faults allow, and checks after every step that
// what Conclave promises holds. Explore visits every interleaving of a small
// world.
//
// The Machines are those that the agent runs; the simulator only carries their
// messages, and has no part in what they decide.
package sim
