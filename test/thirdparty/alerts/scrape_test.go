package alerts_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// command runs a command of Go in the root module.
func command(t *testing.T, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", args...)
	c.Dir, c.Env = "../../..", append(os.Environ(), "CGO_ENABLED=0") // as for images, so that nothing is compiled twice
	if output, err := c.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, output)
	}
}

// scrapeManager returns the metrics of a manager that has a group, has enrolled an agent, and was
// refused a write. A test of the manager starts it with a real API server.
func scrapeManager(t *testing.T) string {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("CI must not skip tests: set KUBEBUILDER_ASSETS to the output of make envtest-assets")
		}
		t.Skip("no API server: set KUBEBUILDER_ASSETS to the output of make envtest-assets")
	}
	file := filepath.Join(t.TempDir(), "manager")
	command(t, "test", "-trimpath", "-count", "1", "-run", "^TestManagerWorksWithItsPermissions$",
		"./cmd/manager", "-scrape", file)
	text := must.ReadFile(t, file)
	return string(text)
}

// scrapeAgent starts two agents, and returns the metrics of one when they have elected.
func scrapeAgent(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	agent := filepath.Join(folder, "agent")
	command(t, "build", "-trimpath", "-o", agent, "./cmd/agent")
	run := func(args ...string) *exec.Cmd {
		c := exec.CommandContext(t.Context(), agent, args...)
		c.Dir, c.Stderr = folder, t.Output()
		return c
	}
	must.Succeed(t, run("certificates", "--group", "ledger", "--member", "a", "--member", "b", "--out", ".").Run())
	addresses := map[string]string{"a": freeAddress(t), "b": freeAddress(t)}
	api := freeAddress(t)
	for name, local := range map[string]string{"a": api, "b": freeAddress(t)} {
		config := fmt.Sprintf(
			"{self: %[1]s, api: %[2]q, listen: %[3]q, tls: {certFile: %[1]s.pem, keyFile: %[1]s-key.pem, caFile: ca.pem}, "+
				"groups: [{name: ledger, service: {ports: [{listen: %[6]q, port: 1}]}, members: [{name: a, priority: 1, "+
				"address: %[4]q}, {name: b, priority: 2, address: %[5]q}]}]}",
			name, local, addresses[name], addresses["a"], addresses["b"], freeAddress(t))
		must.Succeed(t, os.WriteFile(filepath.Join(folder, name+".yaml"), []byte(config), 0o600))
		process := run("--config", name+".yaml")
		must.Succeed(t, process.Start())
		t.Cleanup(func() { _ = process.Wait() }) // It ends with the context of the test.
	}
	var text string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if text = get("http://" + api + "/metrics"); strings.Contains(text, `conclave_coordinator_known{group="ledger"} 1`) {
			return text
		}
	}
	t.Fatalf("the agents have elected no coordinator:\n%s", text)
	return ""
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// get returns the body of a response, or nothing if there is none.
func get(url string) string {
	response, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return ""
	}
	return string(text)
}

// add adds what a scrape returned, as if Prometheus had scraped the same each 15 s. Labels of the
// target replace those of the metrics only if they have none: honorLabels.
func (d *database) add(t *testing.T, text string, target map[string]string, from, to time.Time) {
	t.Helper()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		metric, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(strings.TrimSpace(line))
		if err != nil || len(values) != 1 {
			t.Fatalf("got %d values and error %v in line %s", len(values), err, line)
		}
		builder := labels.NewBuilder(metric)
		for name, value := range target {
			if !metric.Has(name) {
				builder.Set(name, value)
			}
		}
		series := promql.Series{Metric: builder.Labels()}
		for at := from; !at.After(to); at = at.Add(15 * time.Second) {
			series.Floats = append(series.Floats, promql.FPoint{T: at.UnixMilli(), F: values[0].Value})
		}
		*d = append(*d, series)
	}
}

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
		MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, EnableAtModifier: true,
		EnableNegativeOffset:     true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() },
		Parser:                   parser.NewParser(parser.Options{}),
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
