package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/controllerruntime"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// The manager under test is this test program with these variables.
const (
	agentVariable      = "MANAGER_AGENT"
	fileVariable       = "MANAGER_FILE"
	kubeconfigVariable = "MANAGER_KUBECONFIG"
	// stuckVariable is set for a manager whose controller ignores that it must stop.
	stuckVariable = "MANAGER_STUCK"
)

// What a line of the file says.
const (
	reconciled = "reconciled"
	worked     = "worked"
	// warm: the manager's caches are filled.
	warm = "warm"
)

const workEvery = time.Millisecond

func TestMain(m *testing.M) {
	if os.Getenv(agentVariable) != "" {
		if err := runManager(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	agentcluster.Main(m)
}

// runManager runs a manager with a controller for ConfigMaps, and a runnable that works all the time. Both append lines to a file.
func runManager() error {
	ctrl.SetLogger(logr.Discard())
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv(kubeconfigVariable))
	if err != nil {
		return err
	}
	file, err := os.OpenFile(os.Getenv(fileVariable), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	election := controllerruntime.New("ledger", client.At(os.Getenv(agentVariable)))
	mgr, err := ctrl.NewManager(config, election.Options(ctrl.Options{Metrics: server.Options{BindAddress: "0"}}))
	if err != nil {
		return err
	}
	write := func(what string) error {
		_, err := fmt.Fprintln(file, election.Token(), os.Getpid(), what, time.Now().UnixNano())
		return err
	}
	err = errors.Join(
		ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func(
			func(context.Context, reconcile.Request) (reconcile.Result, error) {
				return reconcile.Result{}, write(reconciled)
			})),
		mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return work(ctx, write) })),
		mgr.Add(always{func(ctx context.Context) error {
			if _, err := mgr.GetCache().GetInformer(ctx, &corev1.ConfigMap{}); err != nil {
				return err
			}
			return write(warm)
		}}),
	)
	if err != nil {
		return err
	}
	return election.Run(ctrl.SetupSignalHandler(), mgr.Start)
}

// always is a runnable that doesn't wait until the manager is elected.
type always struct{ manager.RunnableFunc }

func (always) NeedLeaderElection() bool { return false }

func work(ctx context.Context, write func(string) error) error {
	tick := time.NewTicker(workEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if os.Getenv(stuckVariable) == "" {
				return nil
			}
			ctx = context.WithoutCancel(ctx)
		case <-tick.C:
			if err := write(worked); err != nil {
				return err
			}
		}
	}
}
