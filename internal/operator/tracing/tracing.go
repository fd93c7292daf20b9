// Package tracing exports elections as OpenTelemetry traces: a span for each election, and
// below it one for each agent, with the steps of the agent's journal as events.
//
//	Add -> queue -> settle -> journals of the agents -> transcript.Merge -> spans -> OTLP
//
// Nothing waits for it. Add never blocks: if the queue is full, the election is dropped and
// counted. One goroutine does the rest, one election after the other, and each within a limited
// time. It begins when the election has ended.
//
// The IDs of a trace follow from the UID of the group and the term. So an election that is
// exported again after a restart of the operator has the same trace.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/protocol/journal"
	"github.com/conclave-dev/conclave/internal/transcript"
	"github.com/conclave-dev/conclave/internal/transcript/gather"
)

const (
	// queueMax is the most elections that wait. A node on which a thousand coordinators
	// run can crash.
	queueMax = 1024
	// settle is the wait after the operator has learned of an election. All agents have
	// learned of it by then, unless they are down.
	settle = time.Second
	// exportTimeout bounds the time for one election. OTEL_EXPORTER_OTLP_TIMEOUT bounds the
	// request to the collector, by default to 10 s.
	exportTimeout = 20 * time.Second
	// membersMax is the most members whose journals are read.
	membersMax = 64
)

// Election identifies an election that has ended.
type Election struct {
	Group types.NamespacedName
	UID   types.UID
	Term  uint64
	// Members are the pods whose agents took part.
	Members []string
}

// ReadJournal reads the journal of a pod's agent about a group. It takes a limited time and
// memory.
type ReadJournal func(ctx context.Context, pod types.NamespacedName, group string) (*journal.Journal, error)

// Exporter exports elections. A nil *Exporter does nothing.
type Exporter struct {
	client   sdk.SpanExporter
	resource *resource.Resource
	log      logr.Logger
	queue    chan queued
	results  *prometheus.CounterVec
	read     ReadJournal
}

// queued is an election in the queue.
type queued struct {
	Election

	at time.Time
}

// New returns an exporter that the environment configures, by the variables of the OpenTelemetry
// specification. It connects when it exports the first election.
func New(ctx context.Context, version string, log logr.Logger) (*Exporter, error) {
	// The SDK reports what it can't do about these variables, such as a certificate that is missing.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Error(err, "cannot trace elections") }))
	client, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot export traces: %w", err)
	}
	from, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "conclave"), attribute.String("service.version", version)),
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES must be pairs such as team=bank, separated by commas, got %q: %w", os.Getenv("OTEL_RESOURCE_ATTRIBUTES"), err)
	}
	x := &Exporter{client: client, resource: from, log: log, queue: make(chan queued, queueMax), results: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "conclave_operator_election_traces_total",
		Help: "Elections that were exported as traces, whose export failed, or that were dropped because too many were waiting.",
	}, []string{"result"})}
	for _, result := range []string{exported, failed, dropped} {
		x.results.WithLabelValues(result) // so that its first increase is visible
	}
	return x, nil
}

// The values of the metric's label.
const (
	exported = "exported"
	failed   = "failed"
	dropped  = "dropped"
)

// Metrics returns the metrics.
func (x *Exporter) Metrics() prometheus.Collector { return x.results }

// ReadWith sets how journals are read. Call it before Start.
func (x *Exporter) ReadWith(read ReadJournal) { x.read = read }

// Add exports an election in the background. It never blocks.
func (x *Exporter) Add(e Election) {
	if x == nil {
		return
	}
	select {
	case x.queue <- queued{e, time.Now()}:
	default:
		x.results.WithLabelValues(dropped).Inc()
	}
}

// NeedLeaderElection makes the manager start the exporter in the leader only.
func (x *Exporter) NeedLeaderElection() bool { return true }

// Start exports elections until the context is done. It implements manager.Runnable.
func (x *Exporter) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return x.client.Shutdown(context.WithoutCancel(ctx)) // It closes the connection.
		case next := <-x.queue:
			select {
			case <-ctx.Done():
			case <-time.After(time.Until(next.at.Add(settle))):
				x.export(ctx, &next.Election)
			}
		}
	}
}

// export exports an election, and counts the result.
func (x *Exporter) export(ctx context.Context, e *Election) {
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	err := x.tryExport(ctx, e)
	if err == nil {
		x.results.WithLabelValues(exported).Inc()
		return
	}
	x.results.WithLabelValues(failed).Inc()
	x.log.Info("cannot export the trace of an election", "group", e.Group, "term", e.Term, "reason", err.Error())
}

func (x *Exporter) tryExport(ctx context.Context, e *Election) (err error) {
	defer func() {
		if problem := recover(); problem != nil { // An agent, which may be hostile, must not stop the operator.
			err = fmt.Errorf("cannot merge the journals: %v", problem)
		}
	}()
	journals, missing := x.readJournals(ctx, e)
	election := transcript.Merge(journals, e.Term, missing...)
	switch {
	case election == nil && len(missing) > 0:
		return fmt.Errorf("no journal has it; missing: %s (%s)", missing[0].Agent, missing[0].Reason)
	case election == nil:
		return errors.New("no journal has it")
	}
	return x.client.ExportSpans(ctx, spansOf(e, election, x.resource))
}

// readJournals reads the journals of the members. It also returns which are missing.
func (x *Exporter) readJournals(ctx context.Context, e *Election) ([]journal.Journal, []transcript.Missing) {
	members := e.Members[:min(len(e.Members), membersMax)]
	journals, missing := gather.Journals(ctx, e.Group.Name, members, func(ctx context.Context, pod string) (*journal.Journal, error) {
		return x.read(ctx, types.NamespacedName{Namespace: e.Group.Namespace, Name: pod}, e.Group.Name)
	})
	for _, pod := range e.Members[len(members):] {
		missing = append(missing, transcript.Missing{Agent: pod, Reason: fmt.Sprintf("not read: the group has more than %d members", membersMax)})
	}
	return journals, missing
}
