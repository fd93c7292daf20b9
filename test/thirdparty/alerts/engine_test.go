package alerts_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// database has the series of a test. The test framework of Prometheus (promqltest) would be a
// real storage, but compiles the clients of all clouds.
type database []promql.Series

// Querier implements storage.Queryable.
func (d database) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: d.selectSeries}, nil
}

func (d database) selectSeries(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := &seriesSet{}
	for _, series := range d {
		matches := func(m *labels.Matcher) bool { return m.Matches(series.Metric.Get(m.Name)) }
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !matches(m) }) {
			found.rest = append(found.rest, series)
		}
	}
	slices.SortFunc(found.rest, func(a, b promql.Series) int { return labels.Compare(a.Metric, b.Metric) })
	return found
}

type seriesSet struct {
	current promql.Series
	rest    []promql.Series
}

func (s *seriesSet) Next() bool {
	if len(s.rest) == 0 {
		return false
	}
	s.current, s.rest = s.rest[0], s.rest[1:]
	return true
}

func (s *seriesSet) At() storage.Series              { return promql.NewStorageSeries(s.current) }
func (*seriesSet) Err() error                        { return nil }
func (*seriesSet) Warnings() annotations.Annotations { return nil }

// newEngine returns an engine with the defaults of Prometheus.
func newEngine() *promql.Engine {
	return promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() }, Parser: parser.NewParser(parser.Options{}),
	})
}

// query evaluates an expression.
func (d database) query(t *testing.T, expression string, at time.Time) promql.Vector {
	t.Helper()
	query, err := newEngine().NewInstantQuery(context.Background(), d, nil, expression, at)
	must.Succeedf(t, err, "%s", expression)
	defer query.Close()
	vector, err := query.Exec(t.Context()).Vector()
	must.Succeedf(t, err, "%s", expression)
	return slices.Clone(vector)
}
