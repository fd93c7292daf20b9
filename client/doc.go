// Package client is how a Go program takes part in an election: it asks the
// agent that runs beside it.
//
//	err := client.Run(ctx, "ledger", func(ctx context.Context, token uint64) error {
//		return settle(ctx, token) // until ctx ends
//	})
//
// Run calls the function each time this process has become coordinator, and
// ends its context when it no longer is. Leader and Watch say who leads.
//
// # What is guaranteed
//
// The function never runs twice at a time in one call of Run. It starts only
// when the agent has confirmed that this process leads with this very token.
// When another process shall take over, the function's context ends with
// ErrStop as its cause, and the role isn't handed on before the function has
// returned, or the group's drain time is over, or the agent takes the
// application for dead. In the safety modes Majority and Strict its context also
// ends when the agent hasn't confirmed the tenure in time, whatever keeps it
// from doing so: the time is counted from before the agent was asked, on this
// machine's monotonic clock.
//
// # What is not guaranteed
//
// That nobody else acts while the function does. A context that ends is a
// request: a function that doesn't heed it goes on, and its process may be
// stopped at any instruction (by the kernel, a debugger, the garbage collector,
// a hypervisor) and go on long after its tenure, before anything in it has had
// the chance to notice. Monotonic clocks stand still while a machine is
// suspended, so what runs on one that wakes up may believe for up to a lease
// that it still leads. And what it has sent before may arrive after all that. No
// client can mend this. A resource can: it remembers the highest token that it
// was shown, and refuses lower ones. A later tenure has a higher token, always.
// See examples/fencing.
//
// In the mode Majority an agent that has ended counts as the end of its
// application, too, as when a pod dies: another process may lead at once, while
// a function whose agent alone has died is still being told. Strict waits the
// lease out.
//
// In the mode Available two processes lead while the network is divided, and no
// lease ends a tenure. There, an agent that is stopped and not dead is noticed
// by its silence, after 15 seconds.
//
// What Leader and Watch say was true when the agent wrote it. When a program
// reads it, it may be so no longer.
//
// A function that never returns keeps Run from returning, and this process from
// being coordinator again: the role goes to another process, the agent being
// told that this application is dead, when the drain time is over.
//
// The session is the sign of life of the whole process. It breaks when the
// process ends, not when a part of it hangs: that takes a probe. Programs that
// share an agent are one process to the election, and the one whose session is
// the oldest is told to lead. When that one dies, the role is given up, and the
// next session may be told to lead in another tenure.
package client
