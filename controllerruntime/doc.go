// Package controllerruntime elects the active replica of a manager of controller-runtime, in place of a Lease. The
// manager needs three changed lines:
//
//	election := controllerruntime.New("ledger")
//	mgr, err := ctrl.NewManager(config, election.Options(ctrl.Options{Scheme: scheme}))
//	...
//	err = election.Run(ctrl.SetupSignalHandler(), mgr.Start) // in place of mgr.Start
//
// The manager joins the election of the group when it would ask for a Lease, through the agent that runs in its pod.
// Elections make no request to the API server, so the manager goes on while that is away.
//
// With [Election.RunManagers], the process goes on after a tenure, with another manager. With [Election.AlsoHold], a
// rolling update replaces replicas that only know the Lease.
//
// # Guarantees
//
// Controllers run only while the agent confirms that this process is coordinator. When the office is to be handed over,
// the manager stops, as it does after SIGTERM, and Run returns an error. Then the process must exit, as with a Lease;
// the next one starts with empty controllers. In RunManagers, the next manager does. The office is released once the
// manager has stopped, or the process has ended.
//
// The process exits at once, with status 1, if another process may soon be coordinator and the manager hasn't stopped:
// before the lease or the group's drain timeout ends, when the agent reports that the office is lost, and when the
// agent dies.
//
// # What managers share
//
// The managers of RunManagers run one after another. They may share the configuration, the scheme, and what lives as
// long as the process, such as metrics. They can't share caches, clients that read from these, and runnables: these end
// with their manager.
//
//   - What must be served between tenures, such as webhooks, metrics and probes, belongs to a manager of its own
//     without leader election, which runs all the time. Metrics include those of all managers. The elected ones don't
//     listen at its ports.
//   - Collectors are registered outside of newManager: a registry refuses a second one.
//   - Controllers keep their names: Options sets Controller.SkipNameValidation for all managers but the first.
//   - ctrl.SetupSignalHandler is called once, outside of newManager.
//   - Goroutines that newManager starts aren't stopped. Add them to the manager.
//
// # Limits
//
// They are those of package [client]. The process may be paused at any instruction, and resume after its tenure, before
// it can exit. A request that it has sent earlier may arrive late. Only the resource can reject these: it stores the
// highest token that it has received, which [Election.Token] returns.
//
// A manager may be elected before the caches of its controllers have been filled: a manager of controller-runtime
// doesn't say when. While it stops, its deadline doesn't count the time for which the machine is suspended. In the mode
// Available, it ends 3 s after the last answer of an agent that hangs.
//
// An agent that ends, as during an upgrade of its container, ends the process, too.
package controllerruntime
