// Elector is a leader without Conclave: it takes part in the election of a Lease as client-go's users do, and says by
// HTTP, on /leader, whether it leads. With -stale, it works on when it has lost the Lease, as programs do that don't
// stop in time.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// timedLock records when the last successful request to write the Lease began. client-go counts from its response: that
// may be long after another process has taken the Lease, if this one was stopped in between.
type timedLock struct {
	resourcelock.Interface

	began atomic.Pointer[time.Time]
}

func newTimedLock(lock resourcelock.Interface) *timedLock {
	l := &timedLock{Interface: lock}
	l.began.Store(&time.Time{}) // Nothing was written yet.
	return l
}

func (l *timedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(func() error { return l.Interface.Create(ctx, record) })
}

func (l *timedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(func() error { return l.Interface.Update(ctx, record) })
}

func (l *timedLock) write(request func() error) error {
	began := time.Now()
	err := request()
	if err == nil {
		l.began.Store(&began)
	}
	return err
}

// age returns how long ago that was.
func (l *timedLock) age() time.Duration { return time.Since(*l.began.Load()) }

func main() {
	fmt.Fprintln(os.Stderr, "error:", run(context.Background()))
	os.Exit(1)
}

func run(ctx context.Context) error {
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	var (
		kubeconfig = flag.String("kubeconfig", "", "the kubeconfig file (default: that of the pod)")
		namespace  = flag.String("namespace", "default", "the namespace of the Lease")
		name       = flag.String("lease", "elector", "the name of the Lease")
		identity   = flag.String("identity", hostname, "the identity")
		address    = flag.String("address", ":8080", "the address of the HTTP server")
		duration   = flag.Duration("duration", 15*time.Second,
			"the duration of the Lease. It is renewed within 2/3 of it, every 2/15")
		stale = flag.Bool("stale", false, "work on after the Lease was lost")
	)
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	lock := newTimedLock(&resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: *namespace, Name: *name},
		Client:     kubernetes.NewForConfigOrDie(config).CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: *identity},
	})
	var works atomic.Bool
	ended := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: *duration, RenewDeadline: *duration * 2 / 3, RetryPeriod: *duration * 2 / 15,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { works.Store(true) },
			OnStoppedLeading: func() {
				if !*stale {
					close(ended)
				}
			},
		},
	})
	if err != nil {
		return err
	}
	// A process that was stopped for longer than its Lease still believes to hold it, until it looks at the time.
	leads := func() bool {
		return works.Load() && (*stale || elector.IsLeader() && lock.age() < *duration*2/3)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *address)
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			if !leads() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})}
	go elector.Run(ctx)
	go func() { _ = server.Serve(listener) }()
	<-ended
	return fmt.Errorf("lost the Lease %s", *name)
}
