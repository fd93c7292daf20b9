package agent

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"

	"github.com/conclave-dev/conclave/internal/agent/api"
)

// Process serves an agent: it owns the order in which the parts of the process start and
// end, for an agent with a file as well as for an agent in a pod.
type Process struct {
	// LocalAPI accepts connections of the application. Run closes it. AllowUser decides who
	// may use it if it is a Unix socket.
	LocalAPI  net.Listener
	AllowUser func(uid uint32) bool
	// Groups and Metrics are what the local API serves, also before Start returns.
	Groups  api.Groups
	Metrics http.Handler
	// Prepare, if it isn't nil, runs from the beginning until its context ends. It provides what Start waits for.
	Prepare func(context.Context)
	// Start starts the agent. It may wait, for example for a certificate.
	Start func(context.Context) (*Started, error)
	Log   *slog.Logger
}

// Started is a running agent with what serves it.
type Started struct {
	Agent interface {
		AwaitReplacement(ctx context.Context)
		Close(ctx context.Context)
	}
	// Tasks change the agent until their context ends: they apply new settings, for example.
	Tasks []func(context.Context)
	// ServeOperator, if it isn't nil, serves the API for the operator until its context ends.
	ServeOperator func(context.Context) error
}

// Run runs the process until ctx ends or a server fails. The process ends in this order:
//
//  1. The agent waits until no group needs its vote, if the operator replaces it.
//  2. The tasks end, so that the agent joins no further group. Then it leaves its groups. A coordinator hands the
//     office over, for which the application must receive the request to stop.
//  3. The API for the operator ends: the operator receives the last reports before.
//  4. The local API ends.
func (p *Process) Run(ctx context.Context) error {
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	running, stopRunning := context.WithCancel(ctx)
	defer stopRunning()
	served := make(chan error, 1)
	go func() {
		served <- api.Serve(serving, p.LocalAPI, api.RestrictUsers(api.New(p.Groups, p.Metrics), p.AllowUser))
		stopRunning() // The application cannot reach an agent without its local API.
	}()
	err := p.runAgent(running)
	stopServing()
	return errors.Join(err, <-served)
}

func (p *Process) runAgent(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	defer p.awaitTasks(&tasks)
	defer stop()
	if p.Prepare != nil {
		tasks.Go(func() { p.Prepare(ctx) })
	}
	started, err := p.Start(ctx)
	switch {
	case errors.Is(err, context.Canceled):
		return nil
	case err != nil:
		return err
	}
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	served := make(chan error, 1)
	go func() {
		served <- started.serveOperator(serving)
		stop()
	}()
	working, stopWorking := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWorking()
	for _, task := range started.Tasks {
		tasks.Go(func() { task(working) })
	}
	<-ctx.Done()
	p.Log.Info("shutting down")
	started.Agent.AwaitReplacement(serving)
	stopWorking()
	p.awaitTasks(&tasks)
	started.Agent.Close(context.WithoutCancel(ctx))
	stopServing()
	return <-served
}

func (p *Process) awaitTasks(tasks *sync.WaitGroup) { waitBriefly(p.Log, "a task", tasks.Wait) }

func (s *Started) serveOperator(ctx context.Context) error {
	if s.ServeOperator == nil {
		<-ctx.Done()
		return nil
	}
	return s.ServeOperator(ctx)
}

// NewLife returns the incarnation of a process: a random number above 0.
func NewLife() uint32 { return 1 + rand.Uint32N(1<<32-1) }
