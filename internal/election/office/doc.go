// Package office is what an agent runs: one of the six elections, wrapped in
// what real networks and applications need. It is an election.Machine around
// another election.Machine, the inner election.
//
// The inner election decides which process should be coordinator. The office is
// the right to act as coordinator. In the modes Majority and Strict at most one
// process holds it: the winner sends a BEAT to all members to request grants
// (package grants), and it acquires the office when a majority has granted. The
// BEATs that follow renew the grants, announce the coordinator, and are the sign
// of life that the detectors of all members wait for. In Available mode there
// are no grants and the winner acquires the office at once, so that a partition
// can have two coordinators.
//
//	candidate             members
//	  | BEAT(term)  --------> |   requests the office
//	  | <-------------- GRANT |   granted for a lease of the member's clock
//	  | BEAT(term, held) ---> |   the sender holds the office: follow it
//
// # Roles
//
//	follower   follows a coordinator, or knows none
//	candidate  has won an election and collects grants
//	holder     holds the office: it is the coordinator
//	draining   still holds the office; its application is stopping
//
// A process changes its role as follows:
//
//	follower  -> candidate  it won an election, or it is the named successor
//	candidate -> holder     a majority granted (Available: at once)
//	candidate -> follower   the claim was refused, timed out or was abandoned,
//	                        or another process holds the office
//	holder    -> draining   a higher process is ready, an operator requested a
//	                        step-down, or the process became an observer
//	holder,
//	draining  -> follower   it resigned, its grants expired, its application
//	                        died, or (Available) it found a newer coordinator
//
// When the coordinator is suspected or its process has ended, the highest process
// that is believed alive starts an election at once. The others wait for a time
// that grows with the number of live processes above them.
//
// With broken links these rules alone could elect forever. vacancy describes how a
// group finds a coordinator that stays.
//
// A process that restarts doesn't bully. It waits for a BEAT. The coordinator
// learns from the answers that a higher process is ready, requests its application
// to stop, waits until it has stopped, and resigns in favor of the higher process.
// Only then does the successor start.
//
// # What is not guaranteed
//
// In Available mode each side of a partition has a coordinator. In Majority and
// Strict no process is coordinator while no majority is connected, nor for up to
// a lease after the coordinator was cut off or stopped. The assumptions about
// clocks are those of package grants.
package office
