// Package client lets a Go program take part in an election. It calls the API of the
// agent that runs beside the program.
//
//	err := client.Run(ctx, "ledger", func(ctx context.Context, token uint64) error {
//		return settle(ctx, token) // until ctx ends
//	})
//
// Run calls the function each time this process has become coordinator, and cancels
// the function's context when the tenure ends. Leader and Watch report the coordinator.
//
// The agent's address is that of At, or else of the environment variable CONCLAVE_AGENT, which the webhook sets in pods
// on the network of their node.
//
// # Guarantees
//
// Within one call of Run, the function never runs twice at the same time. Run calls it
// only after the agent has confirmed that this process is coordinator with this token.
//
// In a planned handover, the function's context ends with the cause ErrStop. The agent hands over only after the
// function has returned, the group's drain timeout has passed, or the agent considers the application dead.
//
// In the safety modes Majority and Strict, the context also ends if the agent hasn't confirmed the tenure in time, for
// whatever reason. The client measures that time from before it sends the request, and on Linux, it includes the time
// during which the machine is suspended (CLOCK_BOOTTIME).
//
// # Limits
//
// In Majority and Strict, the function isn't called if the group's drain timeout is 0, and a drain timeout that is
// shorter than the lease takes its place: after it, the agent hands over even if this process is paused.
//
// The client cannot ensure that no other process acts while the function does. Canceling a context is only a request: a
// function that ignores it continues. The kernel, a debugger, the garbage collector or a hypervisor may pause the
// process at any instruction, and the process may resume long after its tenure, before any of its code can check. A
// virtual machine may not notice that its host suspended it. And a request that the function has sent earlier may
// arrive after all of that.
//
// No client can solve this, but a resource can: it stores the highest token that it has received, and rejects lower
// ones. Each tenure has a higher token than all earlier tenures. See examples/fencing.
//
// In the mode Majority, the death of an agent counts as the death of its application, too, as when a pod dies. Another
// process may become coordinator at once, while a function whose agent alone has died is still being canceled. The mode
// Strict waits for the end of the lease.
//
// In the mode Available, there may be two coordinators while the network is divided, and no lease ends a tenure. If the
// agent hangs, the client notices after 15 seconds without data.
//
// The results of Leader and Watch were true when the agent sent them. They may be outdated when the program reads them.
//
// If the function doesn't return, Run doesn't return either, and this process cannot
// become coordinator again. After the drain timeout, the client closes the session. The
// agent then considers the application dead, and another process becomes coordinator.
//
// A session ends with its process, or if the process stops renewing it while the function runs, as when it is paused or
// deadlocked. It doesn't end if only the function hangs; use a probe to detect that. Several programs that share an
// agent count as one process in the election. The agent assigns the tenure to the oldest session. If that session ends,
// the agent gives up the office, and it may assign another tenure to the next session.
package client
