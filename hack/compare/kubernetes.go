package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// leaseElector uses client-go's leader election.
type leaseElector struct {
	config  leaderelection.LeaderElectionConfig
	leading atomic.Bool
}

func leaseStarter(duration, deadline, retry time.Duration) starter {
	return func(_ context.Context, s *spec) ([]elector, error) {
		config, err := clientcmd.BuildConfigFromFlags("", s.Server)
		if err != nil {
			return nil, err
		}
		config.Dial = s.dialer().DialContext
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, &s.requests} })
		var all []elector
		for i := range s.Groups {
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return nil, err
			}
			all = append(all, &leaseElector{config: leaderelection.LeaderElectionConfig{
				Lock: &resourcelock.LeaseLock{
					LeaseMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: s.Set + "-" + groupName(i)},
					Client:    client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: strconv.Itoa(s.Self)},
				},
				LeaseDuration: duration, RenewDeadline: deadline, RetryPeriod: retry, ReleaseOnCancel: true,
			}})
		}
		return all, nil
	}
}

func (e *leaseElector) run(ctx context.Context, to *reporter) error {
	e.config.Callbacks = leaderelection.LeaderCallbacks{
		OnStartedLeading: func(context.Context) {
			e.leading.Store(true)
			to.check()
		},
		OnStoppedLeading: func() { e.leading.Store(false) },
		OnNewLeader:      func(identity string) { to.know(parseIndex(identity)) },
	}
	for ctx.Err() == nil { // In a pod, the process would exit when it loses the Lease, and be restarted.
		elector, err := leaderelection.NewLeaderElector(e.config)
		if err != nil {
			return err
		}
		elector.Run(ctx)
		to.check()
	}
	return nil
}

func (e *leaseElector) leads() bool { return e.leading.Load() }

// counting counts requests.
type counting struct {
	next     http.RoundTripper
	requests *atomic.Int64
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return c.next.RoundTrip(r)
}

// etcdElector uses etcd's election.
type etcdElector struct {
	client  *clientv3.Client
	prefix  string
	self    string
	ttl     int
	session atomic.Pointer[concurrency.Session]
}

func etcdStarter(ttl int) starter {
	return func(ctx context.Context, s *spec) ([]elector, error) {
		client, err := clientv3.New(clientv3.Config{
			Endpoints: []string{s.Server}, Logger: zap.NewNop(), Context: context.WithoutCancel(ctx),
			DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				return s.dialer().DialContext(ctx, "tcp", address)
			})},
		})
		if err != nil {
			return nil, err
		}
		var all []elector
		for i := range s.Groups {
			all = append(all,
				&etcdElector{client: client, prefix: s.Set + "/" + groupName(i), self: strconv.Itoa(s.Self), ttl: ttl})
		}
		return all, nil
	}
}

func (e *etcdElector) run(ctx context.Context, to *reporter) error {
	for ctx.Err() == nil {
		if err := e.campaign(ctx, to); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// campaign takes part until its session or ctx ends.
func (e *etcdElector) campaign(ctx context.Context, to *reporter) error {
	session, err := concurrency.NewSession(e.client, concurrency.WithTTL(e.ttl))
	if err != nil {
		return fmt.Errorf("cannot open a session: %w", err)
	}
	defer session.Close()
	campaigning, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-session.Done():
			cancel()
		case <-campaigning.Done():
		}
	}()
	election := concurrency.NewElection(session, e.prefix)
	go func() {
		for leader := range election.Observe(campaigning) {
			to.know(parseIndex(string(leader.Kvs[0].Value)))
		}
	}()
	if err := election.Campaign(campaigning, e.self); err != nil {
		if campaigning.Err() != nil {
			return nil // The loop begins again, or ctx has ended.
		}
		return err
	}
	e.session.Store(session)
	to.check()
	<-campaigning.Done()
	e.session.Store(nil)
	to.check()
	if ctx.Err() == nil {
		return nil
	}
	resigning, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer done()
	return election.Resign(resigning)
}

func (e *etcdElector) leads() bool {
	session := e.session.Load()
	if session == nil {
		return false
	}
	select {
	case <-session.Done():
		return false
	default:
		return true
	}
}

// parseIndex returns the index of a candidate, or -1 if the text is none.
func parseIndex(text string) int {
	index, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return index
}
