package main

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestTimeoutOfTheLeaseEndsNoWatch: only requests for the Lease have a timeout. Watches would end with it, too.
func TestTimeoutOfTheLeaseEndsNoWatch(t *testing.T) {
	m := &manager{options: options{podName: "conclave-manager-0"}, config: &rest.Config{Host: "https://127.0.0.1:1", UserAgent: "manager"}}
	lock, err := m.newLeaderLock()
	if err != nil || lock.Identity() != "conclave-manager-0" {
		t.Fatalf("got %+v, %v, want a lock of the pod", lock, err)
	}
	if m.config.Timeout != 0 || m.config.UserAgent != "manager" {
		t.Errorf("got timeout %s and user agent %q for all requests, want none and %q", m.config.Timeout, m.config.UserAgent, "manager")
	}
}

// TestRestartedLeaderNeedNotWaitForItsLease: the process was killed, so it hasn't released its Lease. The next one in the same pod
// continues it. Otherwise it would wait until the Lease has expired, and count as another leader.
func TestRestartedLeaderNeedNotWaitForItsLease(t *testing.T) {
	const pod = "conclave-manager-7d4b9-x2x4z"
	t.Setenv("POD_NAME", pod)
	e := newEnv(t)
	lead := func(after coordinationv1.LeaseSpec) (is coordinationv1.LeaseSpec) {
		e.eventually("the manager leads", func() error {
			var lease coordinationv1.Lease
			err := e.get(&lease, namespace, leaseName)
			if is = lease.Spec; err == nil && (is.RenewTime == nil || after.RenewTime.Equal(is.RenewTime)) {
				return errors.New("it hasn't renewed the Lease")
			}
			return err
		})
		return is
	}
	stop := e.start()
	e.eventually("the manager is ready", e.ready)
	before := lead(coordinationv1.LeaseSpec{})
	must.Succeed(t, syscall.Kill(e.pid, syscall.SIGKILL))
	stop()
	var last coordinationv1.Lease
	must.Succeed(t, e.get(&last, namespace, leaseName))
	e.start()
	after := lead(last.Spec)
	if *after.HolderIdentity != pod || *after.LeaseTransitions != *before.LeaseTransitions || !after.AcquireTime.Equal(before.AcquireTime) {
		t.Errorf("got Lease %+v after %+v, want the same tenure of pod %s", after, before, pod)
	}
}

// TestCheckUninstallFindsPodsOfStrictGroups, with the permissions of the manager.
func TestCheckUninstallFindsPodsOfStrictGroups(t *testing.T) {
	e := newEnv(t)
	check := func() (int, string) {
		root := newRoot()
		var stderr bytes.Buffer
		root.SetArgs([]string{"check-uninstall"})
		root.SetErr(&stderr)
		return command.Execute(t.Context(), root), stderr.String()
	}
	pod := func(name string, finalizers ...string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Finalizers: finalizers},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
		}
	}
	e.create(pod("other-0", "example.com/backup"))
	if status, stderr := check(); status != command.ExitOK || stderr != "" {
		t.Errorf("without pods of Strict groups: got status %d and %q, want success", status, stderr)
	}
	e.create(pod("ledger-0", v1.StopFinalizer("ledger")), pod("ledger-1", v1.StopFinalizer("ledger")))
	want := "error: 2 pods of groups in Strict mode could not be deleted without the operator: delete these groups first, or set another mode: default/ledger\n"
	if status, stderr := check(); status != command.ExitFailure || stderr != want {
		t.Errorf("got status %d and %q, want status %d and %q", status, stderr, command.ExitFailure, want)
	}
}
