package controllers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/conclave-dev/conclave/controllers"
)

// actor is an operator that can be watched and killed.
type actor struct {
	s       *stage
	cancel  context.CancelFunc
	synced  func(context.Context) bool
	done    chan struct{}
	metrics *prometheus.Registry

	mu     sync.Mutex
	writes []string
	// lull is the operator's: 0 is a long one, and less than that the usual.
	lull time.Duration
	// last is the number of the write after which it dies, or 0; fails that of the
	// write that fails, and lost that of the one whose answer doesn't arrive.
	last, fails, lost int
	dead              bool
	// before is called before each write goes out, and answered after it.
	before   func(*http.Request)
	answered func(*http.Request, *http.Response)
	// refuses are the writes that are refused.
	refuses func(*http.Request) bool
	// asked are the paths of what it read.
	asked []string
	// thawed is closed unless what it watches of frozen, a resource, doesn't arrive.
	frozen string
	thawed chan struct{}
}

// trip counts what is written, and ends the operator's life.
type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var (
	errDead   = errors.New("this operator is dead")
	errFailed = errors.New("the test has this write fail")
)

func (a *actor) pass(next http.RoundTripper) http.RoundTripper {
	return trip(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			a.mu.Lock()
			dead := a.dead
			a.asked = append(a.asked, r.URL.Path)
			a.mu.Unlock()
			if dead {
				return nil, errDead
			}
			answer, err := next.RoundTrip(r)
			if err == nil && r.URL.Query().Get("watch") == "true" {
				resource := path.Base(r.URL.Path)
				answer.Body = &ice{ReadCloser: answer.Body, actor: a, resource: resource, closed: make(chan struct{})}
			}
			return answer, err
		}
		a.mu.Lock()
		if a.dead {
			a.mu.Unlock()
			return nil, errDead
		}
		a.writes = append(a.writes, r.Method+" "+strings.ReplaceAll(r.URL.Path, a.s.namespace, "NAMESPACE"))
		number := len(a.writes)
		// Writes are in parallel: the ones after the last don't get out any more.
		a.dead = number == a.last
		a.mu.Unlock()
		if number == a.fails {
			return nil, errFailed
		}
		if a.refuses != nil && a.refuses(r) {
			return refusal(r), nil
		}
		if a.before != nil {
			a.before(r)
		}
		answer, err := next.RoundTrip(r)
		if a.answered != nil && err == nil {
			a.answered(r, answer)
		}
		if number == a.last {
			a.cancel()
		}
		if number == a.lost && err == nil {
			_ = answer.Body.Close()
			return nil, errFailed
		}
		return answer, err
	})
}

// refusal is how the API server answers if a policy forbids something.
func refusal(r *http.Request) *http.Response {
	body, err := json.Marshal(apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "it", errFailed).Status())
	if err != nil {
		panic(err) // It is a constant.
	}
	return &http.Response{
		StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), Request: r,
	}
}

// ice is what is watched, which doesn't arrive while it is frozen.
type ice struct {
	io.ReadCloser
	actor    *actor
	resource string
	once     sync.Once
	closed   chan struct{}
}

func (i *ice) Read(p []byte) (int, error) {
	n, err := i.ReadCloser.Read(p)
	i.actor.mu.Lock()
	frozen, thawed := i.actor.frozen == i.resource, i.actor.thawed
	i.actor.mu.Unlock()
	if frozen {
		select {
		case <-thawed:
		case <-i.closed:
		}
	}
	return n, err
}

func (i *ice) Close() error {
	i.once.Do(func() { close(i.closed) })
	return i.ReadCloser.Close()
}

// freeze has the operator see no change of a resource any more, until thaw.
func (a *actor) freeze(resource string) (thaw func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	thawed := make(chan struct{})
	a.frozen, a.thawed = resource, thawed
	return func() { close(thawed) }
}

// asks is how often it has read an object, but for what its cache reads.
func (a *actor) asks(object string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	count := 0
	for _, read := range a.asked {
		if strings.HasSuffix(read, object) {
			count++
		}
	}
	return count
}

func (a *actor) written() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.writes)
}

// stop kills it, and waits until it is gone. A manager that is told to end before
// its caches are there never does: its runnableGroup waits for them in vain.
func (a *actor) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	a.synced(ctx)
	a.mu.Lock()
	a.dead = true
	a.mu.Unlock()
	a.cancel()
	<-a.done
}

// operator starts an operator. Its lull is long, so that a test on a busy machine
// can have several agents say something at once.
func (s *stage) operator(changes ...func(*actor)) *actor {
	s.t.Helper()
	a := &actor{s: s, done: make(chan struct{}), metrics: prometheus.NewRegistry()}
	for _, change := range changes {
		change(a)
	}
	if a.lull < 0 {
		a.lull = 0 // the usual one
	} else if a.lull == 0 {
		a.lull = 100 * time.Millisecond
	}
	config := rest.CopyConfig(apiServer.Config(s.t))
	config.QPS = -1
	config.Impersonate.UserName = entitled(s.t)
	config.Wrap(a.pass)
	caches := controllers.Cache()
	caches.DefaultNamespaces = map[string]cache.Config{s.namespace: {}}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: s.scheme, Cache: caches, Logger: testr.NewWithInterface(s.t, testr.Options{Verbosity: -1}),
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel, a.synced = cancel, mgr.GetCache().WaitForCacheSync
	err = controllers.Setup(mgr, controllers.Options{
		Credentials: s.wardrobe, CA: s, Dial: s.network.Dial,
		Debounce: a.lull, Metrics: a.metrics, SkipNameValidation: true,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(a.done)
		_ = mgr.Start(ctx)
	}()
	s.t.Cleanup(a.stop)
	return a
}
