package tracing

import (
	"context"
	"crypto/sha256"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/conclave-dev/conclave/internal/transcript"
)

// scope names the instrumentation, as OpenTelemetry asks for.
const scope = "github.com/conclave-dev/conclave/internal/operator/tracing"

// spansOf returns the trace of an election: a span for the election, and below it one for each
// agent.
func spansOf(of *Election, e *transcript.Election, from *resource.Resource) []sdk.ReadOnlySpan {
	ended, ids := &ended{}, &identifiers{trace: traceID(of)}
	limits := sdk.NewSpanLimits()
	limits.EventCountLimit = -1 // The journals are bounded.
	provider := sdk.NewTracerProvider(sdk.WithResource(from), sdk.WithSpanProcessor(ended), sdk.WithIDGenerator(ids),
		sdk.WithSampler(sdk.AlwaysSample()), sdk.WithRawSpanLimits(limits))
	tracer := provider.Tracer(scope)
	at := func(micros int64) trace.SpanEventOption {
		return trace.WithTimestamp(e.Began.Add(time.Duration(micros) * time.Microsecond))
	}
	group := []attribute.KeyValue{
		attribute.String("k8s.namespace.name", of.Group.Namespace), attribute.String("conclave.group.name", of.Group.Name),
		attribute.Int64("conclave.term", int64(of.Term)), //nolint:gosec // Terms are below 2^63.
	}

	ids.next = spanID(of, "")
	ctx, root := tracer.Start(context.Background(), "election", at(0), trace.WithAttributes(group...), trace.WithAttributes(electionAttributes(of, e)...))
	for _, m := range e.Milestones {
		root.AddEvent(m.Text, at(m.Micros))
	}
	agents, last, end := map[string]trace.Span{}, map[string]int64{}, int64(0)
	var order []string
	texts := e.Texts()
	for i := range e.Steps {
		step := &e.Steps[i]
		span := agents[step.Agent]
		if span == nil {
			ids.next = spanID(of, step.Agent)
			// Traces are read by the names of their spans, and a group has few pods.
			_, span = tracer.Start(ctx, "agent "+step.Agent, at(step.Micros), trace.WithAttributes(group...), trace.WithAttributes(attribute.String("k8s.pod.name", step.Agent)))
			agents[step.Agent] = span
			order = append(order, step.Agent)
		}
		span.AddEvent(texts[i].Got, at(step.Micros), trace.WithAttributes(stepAttributes(step, &texts[i])...))
		last[step.Agent], end = step.Micros, max(end, step.Micros)
	}
	for _, agent := range order {
		agents[agent].End(at(last[agent]))
	}
	root.End(at(end))
	return ended.spans
}

func electionAttributes(of *Election, e *transcript.Election) []attribute.KeyValue {
	attributes := []attribute.KeyValue{
		attribute.String("conclave.group.uid", string(of.UID)), attribute.String("conclave.algorithm", e.Algorithm), attribute.String("conclave.safety", e.Safety),
		attribute.String("conclave.coordinator", e.Coordinator), attribute.String("conclave.messages", e.CountMessages()),
	}
	if e.Former != "" {
		attributes = append(attributes, attribute.String("conclave.former_coordinator", e.Former), attribute.String("conclave.cause", string(e.Cause)))
	}
	if len(e.Missing) > 0 {
		var missing []string
		for _, m := range e.Missing {
			missing = append(missing, m.Agent+": "+m.Reason)
		}
		attributes = append(attributes, attribute.StringSlice("conclave.missing", missing))
	}
	return attributes
}

func stepAttributes(step *transcript.Step, text *transcript.StepText) []attribute.KeyValue {
	var attributes []attribute.KeyValue
	if len(text.Found) > 0 {
		attributes = append(attributes, attribute.StringSlice("conclave.found", text.Found))
	}
	if len(text.Sent) > 0 {
		attributes = append(attributes, attribute.StringSlice("conclave.sent", text.Sent))
	}
	if step.TransitMicros != nil {
		attributes = append(attributes, attribute.Int64("conclave.transit_micros", *step.TransitMicros))
	}
	return attributes
}

// traceID returns the same ID whichever replica of the operator exports the election, and how
// often, so that a backend stores it once.
func traceID(of *Election) (id trace.TraceID) {
	sum := sha256.Sum256([]byte(string(of.UID) + "/" + strconv.FormatUint(of.Term, 10)))
	copy(id[:], sum[:])
	return id
}

// spanID returns the ID of an agent's span, or with "" of the election's.
func spanID(of *Election, agent string) (id trace.SpanID) {
	sum := sha256.Sum256([]byte(string(of.UID) + "/" + strconv.FormatUint(of.Term, 10) + "/" + agent))
	copy(id[:], sum[:])
	return id
}

// identifiers is an IDGenerator that returns what was set before.
type identifiers struct {
	trace trace.TraceID
	next  trace.SpanID
}

func (i *identifiers) NewIDs(context.Context) (trace.TraceID, trace.SpanID) { return i.trace, i.next }

func (i *identifiers) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return i.next }

// ended is a SpanProcessor that collects the spans that have ended.
type ended struct{ spans []sdk.ReadOnlySpan }

func (e *ended) OnStart(context.Context, sdk.ReadWriteSpan) {}
func (e *ended) OnEnd(s sdk.ReadOnlySpan)                   { e.spans = append(e.spans, s) }
func (e *ended) Shutdown(context.Context) error             { return nil }
func (e *ended) ForceFlush(context.Context) error           { return nil }
