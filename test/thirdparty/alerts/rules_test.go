package alerts_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// scenario is a test of one alert, in the format of promtool's unit tests.
type scenario struct {
	Name     string `json:"name"`
	Interval string `json:"interval"`
	Series   []struct {
		Series string `json:"series"`
		Values string `json:"values"`
	} `json:"input_series"`
	Tests []struct {
		Alert    string `json:"alertname"`
		At       string `json:"eval_time"`
		Expected []struct {
			Labels map[string]string `json:"exp_labels"`
		} `json:"exp_alerts"`
	} `json:"alert_rule_test"`
}

func scenarios(t *testing.T) []scenario {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("got files %q and error %v, want scenarios", files, err)
	}
	var all []scenario
	for _, file := range files {
		var content struct {
			Tests []scenario `json:"tests"`
		}
		must.Succeedf(t, yaml.UnmarshalStrict([]byte(read(t, "test/thirdparty/alerts/"+file)), &content), "%s", file)
		all = append(all, content.Tests...)
	}
	return all
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	must.Succeed(t, err)
	return d
}

// start is the time of the first sample, as in promtool.
var start = time.Unix(0, 0).UTC()

func (s *scenario) database(t *testing.T) database {
	t.Helper()
	var all database
	interval := duration(t, s.Interval)
	for _, input := range s.Series {
		metric, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(input.Series + " " + input.Values)
		must.Succeedf(t, err, "%s", input.Series)
		series := promql.Series{Metric: metric}
		for i, value := range values {
			if !value.Omitted {
				at := start.Add(time.Duration(i) * interval)
				series.Floats = append(series.Floats, promql.FPoint{T: at.UnixMilli(), F: value.Value})
			}
		}
		all = append(all, series)
	}
	return all
}

// firing returns the labels of the firing alerts of a rule at a time. Like Prometheus, it evaluates the expression in
// each interval: an alert fires once its expression has had a result for long enough.
func (d database) firing(t *testing.T, r rule, interval, at time.Duration) []string {
	t.Helper()
	since := map[string]time.Duration{}
	for now := time.Duration(0); now <= at; now += interval {
		active := map[string]time.Duration{}
		for _, sample := range d.query(t, r.Expr, start.Add(now)) {
			key := alertLabels(sample.Metric.Map(), r.Labels)
			active[key] = now
			if before, ok := since[key]; ok {
				active[key] = before
			}
		}
		since = active
	}
	maps.DeleteFunc(since, func(_ string, from time.Duration) bool { return at-from < duration(t, r.For) })
	return slices.Sorted(maps.Keys(since))
}

// alertLabels returns the labels of an alert as text.
func alertLabels(all ...map[string]string) string {
	builder := labels.NewScratchBuilder(8)
	for _, some := range all {
		for name, value := range some {
			if name != "__name__" {
				builder.Add(name, value)
			}
		}
	}
	builder.Sort()
	return builder.Labels().String()
}

func TestAlertsFire(t *testing.T) {
	byName := map[string]rule{}
	for _, r := range rules(t) {
		byName[r.Alert] = r
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, s := range scenarios(t) {
		t.Run(s.Name, func(t *testing.T) {
			d := s.database(t)
			for _, test := range s.Tests {
				r, ok := byName[test.Alert]
				if !ok {
					t.Fatalf("there is no alert %s", test.Alert)
				}
				want := []string{}
				for _, alert := range test.Expected {
					want = append(want, alertLabels(alert.Labels))
				}
				slices.Sort(want)
				got := d.firing(t, r, duration(t, s.Interval), duration(t, test.At))
				if !slices.Equal(got, want) {
					t.Errorf("%s at %s: got alerts %s, want %s", test.Alert, test.At, strings.Join(got, ", "),
						strings.Join(want, ", "))
				}
				if len(want) > 0 {
					fires[test.Alert] = true
				} else {
					silent[test.Alert] = true
				}
			}
		})
	}
	for name := range byName {
		if !fires[name] || !silent[name] {
			t.Errorf("alert %s: testdata must have a scenario in which it fires, and one in which it doesn't", name)
		}
	}
}

// runbooks is where the pages are published.
const runbooks = "https://github.com/conclave-dev/conclave/blob/main/docs/runbooks/"

// sections are those of each page.
var sections = []string{"## What it means", "## How to confirm", "## What to do"}

func TestEachAlertHasRunbook(t *testing.T) {
	pages, err := filepath.Glob("../../../docs/runbooks/*.md")
	must.Succeed(t, err)
	var have, want []string
	for _, page := range pages {
		have = append(have, strings.TrimSuffix(filepath.Base(page), ".md"))
	}
	for _, r := range rules(t) {
		want = append(want, r.Alert)
		expect.Equalf(t, r.Annotations["runbook_url"], runbooks+r.Alert+".md", "%s: runbook_url", r.Alert)
	}
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Fatalf("got pages for %q, want one for each alert: %q", have, want)
	}
	for _, name := range have {
		text := read(t, "docs/runbooks/"+name+".md")
		if !strings.HasPrefix(text, "# "+name+"\n") {
			t.Errorf("%s.md must begin with its name", name)
		}
		for _, section := range sections {
			if !strings.Contains(text, "\n"+section+"\n") {
				t.Errorf("%s.md has no section %q", name, section)
			}
		}
	}
}
