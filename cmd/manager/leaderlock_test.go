package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/operator/serve/authority"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestTimeoutOfTheLeaseEndsNoWatch: only requests for the Lease have a timeout. Watches would end with it, too.
func TestTimeoutOfTheLeaseEndsNoWatch(t *testing.T) {
	m := &manager{options: options{podName: "conclave-manager-0"}, config: &rest.Config{
		Host: "https://127.0.0.1:1", UserAgent: "manager",
	}}
	lock, err := m.newLeaderLock()
	if err != nil || lock.Identity() != "conclave-manager-0" {
		t.Fatalf("got %+v, %v, want a lock of the pod", lock, err)
	}
	if m.config.Timeout != 0 || m.config.UserAgent != "manager" {
		t.Errorf("got timeout %s and user agent %q for all requests, want none and %q", m.config.Timeout,
			m.config.UserAgent, "manager")
	}
}

// slowLock is a Lease of an API server that doesn't respond until responds is closed.
type slowLock struct {
	resourcelock.Interface
	responds atomic.Pointer[chan struct{}]
	record   resourcelock.LeaderElectionRecord
}

func (l *slowLock) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewDeadline/2)
	defer cancel()
	select {
	case <-*l.responds.Load():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *slowLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := l.wait(ctx); err != nil {
		return nil, nil, err
	}
	record := l.record
	return &record, []byte(record.HolderIdentity + record.RenewTime.String()), nil
}

func (l *slowLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := l.wait(ctx); err != nil {
		return err
	}
	l.record = record
	return nil
}

func (*slowLock) RecordEvent(string) {}
func (*slowLock) Identity() string   { return "conclave-manager-0" }
func (*slowLock) Describe() string   { return "slow" }

// TestLeaderThatLosesItsLeaseGoesOn: it becomes a standby without an end of the process, and leads again soon after the
// API server responds. When the process ends, it releases the Lease.
func TestLeaderThatLosesItsLeaseGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock, leads, responds := &slowLock{}, make(chan bool, 10), make(chan struct{})
		close(responds)
		lock.responds.Store(&responds)
		e := &elector{lock: lock, set: func(is bool) { leads <- is }, log: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Start(ctx) }()
		await := func(want bool, within time.Duration) {
			t.Helper()
			begin := time.Now()
			select {
			case got := <-leads:
				expect.Equalf(t, got, want, "the replica leads")
			case err := <-done:
				t.Fatalf("the election has ended: %v", err)
			case <-time.After(within):
			}
			expect.AtMostf(t, time.Since(begin), within-1, "time until leads is %t", want)
		}
		await(true, time.Second)
		for range 3 {
			slow := make(chan struct{})
			lock.responds.Store(&slow)
			await(false, leaseDuration)
			time.Sleep(time.Minute)
			close(slow)
			await(true, time.Second)
		}
		cancel()
		expect.Equalf(t, <-leads, false, "the replica leads at the end")
		must.Succeed(t, <-done)
		expect.Equalf(t, lock.record.HolderIdentity, "", "holder of the Lease afterwards")
	})
}

// TestRestartedLeaderNeedNotWaitForItsLease: the process was killed, so it hasn't released its Lease. The next one in
// the same pod continues it. Otherwise it would wait until the Lease has expired, and count as another leader.
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
	if *after.HolderIdentity != pod || *after.LeaseTransitions != *before.LeaseTransitions ||
		!after.AcquireTime.Equal(before.AcquireTime) {
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
	want := "error: 2 pods of groups in Strict mode could not be deleted without the operator: delete these groups " +
		"first, or set another mode: default/ledger\n"
	if status, stderr := check(); status != command.ExitFailure || stderr != want {
		t.Errorf("got status %d and %q, want status %d and %q", status, stderr, command.ExitFailure, want)
	}
}

// A manager that starts after the Secret of the CA was deleted creates no other CA, which
// running agents would not trust, until a user wants that.
func TestManagerDoesNotReplaceTheCAOfGroups(t *testing.T) {
	e := newEnv(t)
	group := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ledger"}}
	group.Spec.Members = []v1.Member{{Pod: "ledger-0", Priority: 1}}
	e.create(group)
	group.Status.Protocol.MemberList = &v1.MemberList{
		Version: 1, State: v1.ListSettled, LeaseMillis: 500, Members: group.Spec.Members,
	}
	group.Status.Protocol.Document = &v1.PublishedDocument{Revision: 1, Digest: strings.Repeat("0", 64)}
	must.Succeed(t, e.Status().Update(t.Context(), group))
	e.start()
	e.eventually("the status reports the missing CA", func() error {
		if err := e.get(group, "default", "ledger"); err != nil {
			return err
		}
		ready := meta.FindStatusCondition(group.Status.Conditions, string(v1.ConditionReady))
		if ready == nil || ready.Reason != string(v1.ReasonCAMissing) ||
			!strings.Contains(ready.Message, "kubectl create secret generic conclave-ca --namespace conclave-system") {
			return fmt.Errorf("got %+v", ready)
		}
		return nil
	})
	e.eventually("the manager has tried again", func() error {
		if strings.Count(e.log.String(), "cannot read CA Secret; retrying") < 2 {
			return errors.New("not yet")
		}
		return nil
	})
	secret := &corev1.Secret{}
	if err := e.get(secret, namespace, authority.SecretName); !apierrors.IsNotFound(err) {
		t.Errorf("got Secret %+v (%v), want none", secret.Data, err)
	}
	e.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: authority.SecretName}})
	e.eventually("the manager is ready", e.ready)
}
