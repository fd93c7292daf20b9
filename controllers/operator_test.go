package controllers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/conclave-dev/conclave/controllers"
	"github.com/conclave-dev/conclave/internal/operator/cache"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// operator is a running operator whose requests can be observed, and fail.
type operator struct {
	env        *env
	cancel     context.CancelFunc
	synced     func(context.Context) bool
	done       chan struct{}
	leadership *controllers.Leadership
	metrics    *prometheus.Registry
	// dial connects to agents.
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex
	writes []string
	// debounce and leaderGrace are those of the controllers.
	debounce, leaderGrace time.Duration
	// lastWrite is the number of the write after which the operator crashes, or 0; failedWrite that of the write that
	// fails, and lostResponse that of the write whose response doesn't arrive.
	lastWrite, failedWrite, lostResponse int
	crashed                              bool
	// beforeWrite is called before each write, and afterWrite after it.
	beforeWrite func(*http.Request)
	afterWrite  func(*http.Request, *http.Response)
	// rejects returns whether a write is rejected.
	rejects func(*http.Request) bool
	// reads are the paths of its reads.
	reads []string
	// rejectsRead returns whether a read is rejected.
	rejectsRead func(*http.Request) bool
	// paused are resources whose watch events don't arrive until resumed is closed.
	paused  []string
	resumed chan struct{}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var (
	errCrashed = errors.New("the operator has crashed")
	errFailed  = errors.New("the test makes this write fail")
)

func (o *operator) intercept(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return o.read(next, r)
		}
		o.mu.Lock()
		if o.crashed {
			o.mu.Unlock()
			return nil, errCrashed
		}
		o.writes = append(o.writes, r.Method+" "+strings.ReplaceAll(r.URL.Path, o.env.namespace, "NAMESPACE"))
		number := len(o.writes)
		// Writes are concurrent: those after the last one are no longer sent.
		o.crashed = number == o.lastWrite
		o.mu.Unlock()
		if number == o.failedWrite {
			return nil, errFailed
		}
		if o.rejects != nil && o.rejects(r) {
			return forbidden(r), nil
		}
		if o.beforeWrite != nil {
			o.beforeWrite(r)
		}
		response, err := next.RoundTrip(r)
		if o.afterWrite != nil && err == nil {
			o.afterWrite(r, response)
		}
		if number == o.lastWrite {
			o.cancel()
		}
		if number == o.lostResponse && err == nil {
			_ = response.Body.Close()
			return nil, errFailed
		}
		return response, err
	})
}

func (o *operator) read(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	o.mu.Lock()
	crashed := o.crashed
	o.reads = append(o.reads, r.URL.Path)
	o.mu.Unlock()
	if crashed {
		return nil, errCrashed
	}
	if o.rejectsRead != nil && o.rejectsRead(r) {
		return forbidden(r), nil
	}
	response, err := next.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") == "true" {
		resource := path.Base(r.URL.Path)
		response.Body = &pausableBody{ReadCloser: response.Body, operator: o, resource: resource, closed: make(chan struct{})}
	}
	return response, err
}

// forbidden is the API server's response if a policy forbids a write.
func forbidden(r *http.Request) *http.Response {
	body, err := json.Marshal(apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "it", errFailed).Status())
	if err != nil {
		panic(err) // It is a constant.
	}
	return &http.Response{
		StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), Request: r,
	}
}

// pausableBody is the response to a watch. Reads block while the resource is paused.
type pausableBody struct {
	io.ReadCloser
	operator *operator
	resource string
	once     sync.Once
	closed   chan struct{}
}

func (b *pausableBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.operator.mu.Lock()
	paused, resumed := slices.Contains(b.operator.paused, b.resource), b.operator.resumed
	b.operator.mu.Unlock()
	if paused {
		select {
		case <-resumed:
		case <-b.closed:
		}
	}
	return n, err
}

func (b *pausableBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.ReadCloser.Close()
}

// pauseWatch delays the watch events of some resources until resume is called.
func (o *operator) pauseWatch(resources ...string) (resume func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	resumed := make(chan struct{})
	o.paused, o.resumed = resources, resumed
	return func() { close(resumed) }
}

// countReads returns how often the operator has read an object, without the reads of its cache.
func (o *operator) countReads(object string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	count := 0
	for _, read := range o.reads {
		if strings.HasSuffix(read, object) {
			count++
		}
	}
	return count
}

func (o *operator) written() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.writes)
}

// stop crashes the operator, and waits until its goroutines have ended. A manager that
// is canceled before its caches have synced never ends: its runnableGroup waits for them.
func (o *operator) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), testwait.Limit)
	defer cancel()
	o.synced(ctx)
	o.mu.Lock()
	o.crashed = true
	o.mu.Unlock()
	o.cancel()
	<-o.done
}

// newOperatedEnv returns a namespace like newEnv, with an operator.
func newOperatedEnv(t *testing.T) (*env, *operator) {
	t.Helper()
	e := newEnv(t)
	return e, e.startOperator()
}

// startOperator starts an operator, which is the leader. Its debounce is long, so that a test on a busy
// machine can change several agents' reports at once.
func (e *env) startOperator(changes ...func(*operator)) *operator {
	e.t.Helper()
	o := &operator{
		env: e, done: make(chan struct{}), metrics: prometheus.NewRegistry(), dial: e.network.Dial,
		leadership: controllers.NewLeadership(), debounce: 100 * time.Millisecond,
	}
	o.leadership.Set(true)
	for _, change := range changes {
		change(o)
	}
	config := rest.CopyConfig(e.config)
	config.QPS = -1
	config.Impersonate.UserName = userWithPermissions(e.t, e.config)
	config.Wrap(o.intercept)
	caches := cache.Options()
	caches.DefaultNamespaces = map[string]ctrlcache.Config{e.namespace: {}}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: testclient.Scheme(), Cache: caches, Logger: testr.NewWithInterface(e.t, testr.Options{Verbosity: -1}),
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: new(true)}, // There are several operators in this process.
	})
	must.Succeed(e.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	o.cancel, o.synced = cancel, mgr.GetCache().WaitForCacheSync
	err = controllers.Setup(mgr, controllers.Options{
		Credentials: e.certificates, Namespace: e.namespace, Dial: o.dial, Debounce: o.debounce,
		LeaderGrace: o.leaderGrace, Metrics: o.metrics, Leadership: o.leadership,
	})
	must.Succeed(e.t, err)
	go func() {
		defer close(o.done)
		_ = mgr.Start(ctx)
	}()
	e.t.Cleanup(o.stop)
	return o
}
