package controllerruntime_test

import (
	"context"
	"errors"
	"log"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/conclave-dev/conclave/controllerruntime"
)

// A process that goes on after a tenure has two managers. The first one serves metrics, probes and webhooks all the
// time. The second one has the controllers, and is created again for each tenure.
func ExampleElection_RunManagers() {
	ctx, cancel := context.WithCancelCause(ctrl.SetupSignalHandler())
	config := ctrl.GetConfigOrDie()
	always, err := ctrl.NewManager(config, ctrl.Options{HealthProbeBindAddress: ":8081"})
	if err != nil {
		log.Fatal(err)
	}
	go func() { cancel(always.Start(ctx)) }()

	election := controllerruntime.New("ledger")
	err = election.RunManagers(ctx, func() (manager.Manager, error) {
		mgr, err := ctrl.NewManager(config, election.Options(ctrl.Options{Metrics: server.Options{BindAddress: "0"}}))
		if err != nil {
			return nil, err
		}
		return mgr, ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func(reconcileConfigMap))
	})
	if err = errors.Join(err, context.Cause(ctx)); !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}

func reconcileConfigMap(context.Context, reconcile.Request) (reconcile.Result, error) {
	return reconcile.Result{}, nil
}
