// Package controllerruntime elects the active replica of a manager of
// controller-runtime, in place of a Lease. The manager needs three changed lines:
//
//	election := controllerruntime.New("ledger")
//	mgr, err := ctrl.NewManager(config, election.Options(ctrl.Options{Scheme: scheme}))
//	...
//	err = election.Run(ctrl.SetupSignalHandler(), mgr.Start) // in place of mgr.Start
//
// The manager joins the election of the group when it would ask for a Lease: after its
// caches have been filled. It does so through the agent that runs in its pod. Elections make
// no request to the API server, so the manager goes on while that is away.
//
// # Guarantees
//
// Controllers run only while the agent confirms that this process is coordinator. When the
// office is to be handed over, the manager stops, as it does after SIGTERM, and Run returns
// an error. Then the process must exit, as with a Lease; the next one starts with empty
// controllers. The office is released once the manager has stopped, or the process has ended.
//
// The process exits at once, with status 1, if another process may soon be coordinator and
// the manager hasn't stopped: before the lease or the group's drain timeout ends, when the
// agent reports that the office is lost, and when the agent dies.
//
// # Limits
//
// They are those of package [client]. The process may be paused at any instruction, and
// resume after its tenure, before it can exit. A request that it has sent earlier may
// arrive late. Only the resource can reject these: it stores the highest token that it has
// received, which [Election.Token] returns.
//
// An agent that ends, as during an upgrade of its container, ends the process, too.
package controllerruntime
