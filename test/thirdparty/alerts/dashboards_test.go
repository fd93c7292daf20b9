package alerts_test

import (
	"encoding/json"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// dashboard is what the tests read of a dashboard of Grafana.
type dashboard struct {
	UID, Title string
	Panels     []panel
	Templating struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
}

type panel struct {
	ID      int
	Title   string
	Panels  []panel // of a row
	Links   []struct{ URL string }
	Targets []struct{ RefID, Expr string }
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob("../../../config/grafana/*.json")
	must.Succeed(t, err)
	all := map[string]dashboard{}
	for _, file := range files {
		var d dashboard
		must.Succeedf(t, json.Unmarshal([]byte(read(t, "config/grafana/"+filepath.Base(file))), &d), "%s", file)
		all[filepath.Base(file)] = d
	}
	return all
}

// expressions returns those of all panels, by title.
func (d *dashboard) expressions() map[string][]string {
	all := map[string][]string{}
	var visit func([]panel)
	visit = func(panels []panel) {
		for _, p := range panels {
			for _, target := range p.Targets {
				all[p.Title] = append(all[p.Title], target.Expr)
			}
			visit(p.Panels)
		}
	}
	visit(d.Panels)
	return all
}

// choices replaces the variables by what a user has selected.
var choices = strings.NewReplacer("$__range_s", "300", "$__range", "5m", "$__rate_interval", "1m", "$namespace",
	"default", "$group", "ledger")

// labelValues is the query of a variable.
var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// TestDashboardsShowData evaluates each expression of the dashboards with what a manager and an agent serve.
func TestDashboardsShowData(t *testing.T) {
	now := time.Now()
	var d database
	d.add(t, scrapeManager(t), map[string]string{
		"job": "conclave-metrics", "namespace": "conclave-system", "pod": "conclave-manager-0", "instance": "10.0.0.1:8443",
	}, now.Add(-5*time.Minute), now)
	d.add(t, scrapeAgent(t), map[string]string{
		"job": "conclave-system/conclave-agents", "namespace": "default", "pod": "ledger-0", "container": "conclave-agent",
		"instance": "10.0.0.2:7375",
	}, now.Add(-5*time.Minute), now)

	all := dashboards(t)
	must.Equalf(t, len(all), 4, "dashboards")
	for file, board := range all {
		expressions := board.expressions()
		expect.AtLeastf(t, len(expressions), 8, "%s: panels with expressions", file)
		for title, exprs := range expressions {
			for _, expr := range exprs {
				if problem := d.problem(t, choices.Replace(expr), now); problem != "" {
					t.Errorf("%s: panel %q: %s: %s", file, title, problem, expr)
				}
			}
		}
		for _, v := range board.Templating.List {
			if v.Type != "query" {
				continue
			}
			text, _ := v.Query.(string)
			found := labelValues.FindStringSubmatch(text)
			if found == nil {
				t.Errorf("%s: got query %v of variable %s, want label_values", file, v.Query, v.Name)
				continue
			}
			values := d.query(t, choices.Replace(found[1]), now)
			if len(values) == 0 || !values[0].Metric.Has(found[2]) {
				t.Errorf("%s: variable %s: got no values of %s", file, v.Name, text)
			}
		}
	}
	t.Run("a renamed metric is detected", func(t *testing.T) {
		for _, expr := range []string{
			"sum(conclave_operator_group_leader)", "sum(rate(conclave_tenure_total[1m]))", `conclave_leading{group="x"}`,
		} {
			if d.problem(t, expr, now) == "" {
				t.Errorf("got a result of %s, want none", expr)
			}
		}
		if d.problem(t, "sum(", now) == "" {
			t.Error("got no problem in an invalid expression")
		}
	})
}

// problem returns why an expression shows nothing. An expression that filters by its value may
// have no result at the moment: then the filtered expression must have one.
func (d database) problem(t *testing.T, text string, now time.Time) string {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		return err.Error()
	}
	if comparison, ok := expr.(*parser.BinaryExpr); ok && comparison.Op.IsComparisonOperator() && !comparison.ReturnBool {
		text = comparison.LHS.String()
	}
	if len(d.query(t, text, now)) == 0 {
		return "no data"
	}
	return ""
}

// TestAvailability: what replicas of the operator have counted one after the other adds up.
func TestAvailability(t *testing.T) {
	const interval = 15
	now := time.Now()
	var d database
	for _, c := range []struct {
		pod, end    string
		first, last int // scrape; 0 is now
		value       float64
	}{{"0", "failure", -19, -8, 3}, {"0", "other", -19, -8, 0}, {"1", "failure", -7, 0, 1.5}, {"1", "other", -7, 0, 0.5}} {
		for _, metric := range []string{"gap_seconds_total", "gaps_total"} {
			series := promql.Series{Metric: labels.FromStrings("__name__", "conclave_operator_group_"+metric,
				"namespace", "default", "group", "ledger", "end", c.end, "pod", c.pod)}
			for scrape := c.first; scrape <= c.last; scrape++ {
				at := now.Add(time.Duration(scrape*interval) * time.Second).UnixMilli()
				series.Floats = append(series.Floats, promql.FPoint{T: at, F: c.value})
			}
			series.Floats[0].F = 0
			d = append(d, series)
		}
	}
	// Prometheus extrapolates by half an interval what the first replica, which is gone, has counted in eleven.
	failures := 3*(11+0.5)/11 + 1.5
	without := (failures + 0.5) / 300
	board := dashboards(t)["conclave-groups.json"]
	want := []float64{1 - without, -math.Log10(without), failures, 0.5, failures, 0.5}
	for i, expr := range board.expressions()["Availability"] {
		got := d.query(t, choices.Replace(expr), now)
		if len(got) != 1 || got[0].Metric.Get("group") != "ledger" || math.Abs(got[0].F-want[i]) > 1e-9 {
			t.Errorf("%s: got %v, want %g", expr, got, want[i])
		}
	}
}

// TestDashboardsCanBeLinked: the uid of a dashboard is part of its address.
func TestDashboardsCanBeLinked(t *testing.T) {
	var uids []string
	for file, board := range dashboards(t) {
		if want := strings.TrimSuffix(file, ".json"); board.UID != want || board.Title == "" {
			t.Errorf("%s: got uid %q and title %q, want uid %s", file, board.UID, board.Title, want)
		}
		uids = append(uids, board.UID)
		ids := map[int]bool{}
		for _, p := range board.Panels {
			refs := map[string]bool{}
			for _, target := range p.Targets {
				refs[target.RefID] = true
			}
			for _, link := range p.Links {
				if book, ok := strings.CutPrefix(link.URL, "https://github.com/conclave-dev/conclave/blob/main/"); !ok ||
					read(t, book) == "" {
					t.Errorf("%s: panel %q: got link %s, want one to a runbook", file, p.Title, link.URL)
				}
			}
			if p.ID == 0 || ids[p.ID] || refs[""] || len(refs) != len(p.Targets) {
				t.Errorf("%s: panel %q: got id %d and queries %v, want ids of their own", file, p.Title, p.ID, p.Targets)
			}
			ids[p.ID] = true
		}
	}
	slices.Sort(uids)
	if len(slices.Compact(uids)) != 4 {
		t.Errorf("got uids %q, want four different ones", uids)
	}
}
