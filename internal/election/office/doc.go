// Package office is what an agent runs: one of the six elections, wrapped in what real networks and applications need.
// It is an election.Machine around another election.Machine, the inner election.
//
// The inner election decides which process should be coordinator. The office is the right to act as coordinator. In the
// modes Majority and Strict at most one process holds it: the winner sends a BEAT to all members to request grants
// (package grants), and it acquires the office when a majority has granted. The BEATs that follow renew the grants,
// announce the coordinator, and are the sign of life that the detectors of all members wait for. In Available mode
// there are no grants and the winner acquires the office at once, so that a partition can have two coordinators.
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
// Each role has a step function for its inputs and a tick function for its timers (step.go). Only the functions
// becomeFollower, becomeCandidate, becomeHolder and becomeDraining change the role. They also set the state and the
// timers that exist in that role alone (role.go).
//
// These are all transitions. The cause is the kind of a message, an input of the process, or the name of a timer.
// "election" is a message or a timer of the inner election. A test of package sim compares the table with the
// transitions that happen in random schedules.
//
//	from      | to        | cause                            | condition
//	follower  | follower  | start                            | the process starts
//	follower  | candidate | start                            | it starts as the last known coordinator
//	follower  | candidate | election, campaign               | it won an election, is the named successor, or repeats a
//	          |           |                                  | claim after a pre-vote
//	candidate | candidate | election                         | it won an election in a higher term
//	candidate | holder    | GRANT, deferred grant, heartbeat | a majority granted; a heartbeat includes the grant of the
//	          |           |                                  | process itself
//	candidate | holder    | election, campaign               | the same, in the step that began the claim; Available: at
//	          |           |                                  | once
//	candidate | follower  | BEAT                             | another process holds the office, or a higher one claims
//	          |           |                                  | it in a higher term
//	candidate | follower  | PROBE                            | a majority follows a process that says that it holds the
//	          |           |                                  | office
//	candidate | follower  | deferred grant                   | it grants a process that says that it holds the office
//	candidate | follower  | DENY                             | so many refused that no majority can grant
//	candidate | follower  | heartbeat                        | no majority that could grant answered for two heartbeats,
//	          |           |                                  | or none granted in time
//	candidate | follower  | adopt, ineligible                | the member list changed, or the application died
//	holder    | draining  | GRANT                            | a higher process is ready, and has been for the stable
//	          |           |                                  | period
//	holder    | draining  | step-down, adopt                 | an operator requested it, or the process became an
//	          |           |                                  | observer
//	holder    | follower  | lease                            | the grants expired
//	holder    | follower  | BEAT, DENY                       | Available: a higher process holds the office, or a member
//	          |           |                                  | knows a higher term
//	holder    | follower  | ineligible                       | the application died
//	draining  | follower  | stopped, drain timeout           | the application stopped, or had its time; the process
//	          |           |                                  | resigned
//	draining  | follower  | lease, BEAT, ineligible          | as for a holder
//
// A process without a coordinator is a follower as well. That it campaigns, or waits for a pre-vote, is the state of
// the vacancy (vacancy.go), which lasts while the process turns candidate and follower again. An observer (a member of
// priority 0) is a follower that never campaigns.
//
// # Timers
//
// These are all deadlines at which a process acts by itself. Some exist in one role only.
//
//	timer                   | set to                                    | when it passes
//	campaign, follower      | the end of the campaign delay and backoff | the process starts an election, or claims the
//	                        |                                           | office
//	probe, follower         | a heartbeat (probe.go: or a probePause),  | the process probes the members
//	                        | while none or a lower one is followed     |
//	heartbeat, others       | the next BEATs                            | the process requests or renews grants, or gives
//	                        |                                           | up a claim that takes too long
//	lease, holders          | the end of the grants, less a margin      | the process loses its tenure
//	drain timeout, draining | the drain timeout                         | the process resigns
//	silence                 | a suspicion timeout after a sign of life  | the process suspects another one
//	election                | the deadline of the inner election        | the inner election goes on, or starts to
//	                        |                                           | recover
//	deferred grant          | when a request can be granted             | the process grants it
//
// All other times in the state say how long something counts, such as an answer (answersUntil) or a penalty
// (flapsUntil). Nothing happens when they pass: the next input or timer finds that they have. For example, a process
// that has stepped down is eligible again with the next BEAT or probe.
//
// # Where to find what
//
//	step.go, role.go         what each role does, and how the roles change
//	receive.go               what all messages have in common
//	follow.go, available.go  following a coordinator, and losing it
//	contender.go             who says that it holds the office, and isn't followed yet
//	grant.go                 answers to the requests of others
//	vacancy.go, campaign.go  pre-vote, campaigns, and delays
//	claim.go                 a candidate's requests, and their answers
//	hold.go, handover.go     renewing, losing, and handing over a tenure
//	tenures.go               processes whose tenures are short again and again
//	inner.go, recover.go     the inner election, and its recovery procedure
//	rest.go                  observers that need not renew now
//	suspect.go, probe.go     which processes are alive, and reachable
//	eligibility.go           whether this process may be elected, and why not
//	forgotten.go             whether it votes, and what it reserves
//
// # Elections
//
// When the coordinator is suspected or its process has ended, the highest process that is believed alive starts an
// election at once. The others wait for a time that grows with the number of live processes above them.
//
// With broken links these rules alone could elect forever. vacancy describes how a
// group finds a coordinator that stays.
//
// A process that restarts runs the recovery procedure of its election and learns who is coordinator: see recovery. It
// doesn't bully. The coordinator learns from the answers to its BEATs that a higher process is ready, requests its
// application to stop, waits until it has stopped, and resigns in favor of the higher process. Only then does the
// successor start.
//
// # What is not guaranteed
//
// In Available mode each side of a partition has a coordinator. In Majority and Strict no process is coordinator while
// no majority is connected, nor for up to a lease after the coordinator was cut off or stopped. Nor is any while the
// members answer so late that grants couldn't be renewed (claim.go). A coordinator that steps down hands over to the
// highest process that says it is ready. One that ranks below the coordinator says so without knowing whether it
// reaches a majority. If it doesn't, the others elect another one at once, or, if they are all ineligible, the former
// coordinator returns after a claim timeout. The assumptions about clocks are those of package grants.
package office
