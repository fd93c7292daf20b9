package chaos

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestOpenMetricsHasEachQuantile(t *testing.T) {
	r := newResult()
	r.Violations = []Violation{{Problem: Problem{OneLeader, "two"}}}
	var b strings.Builder
	must.Succeed(t, r.WriteOpenMetrics(&b))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(b.String()))
	if err != nil || len(families) != 5 {
		t.Fatalf("got %d families and error %v:\n%s", len(families), err, b.String())
	}
	for _, want := range []string{
		`conclave_chaos_faults{namespace="bank",group="ledger",kind="force-pod"} 100` + "\n",
		`conclave_chaos_elected_seconds{namespace="bank",group="ledger",kind="force-pod",quantile="0.99"} 0.099` + "\n",
		`conclave_chaos_settled_seconds{namespace="bank",group="ledger",kind="force-pod",quantile="1"} 8` + "\n",
		`conclave_chaos_violations{namespace="bank",group="ledger"} 1` + "\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the metrics lack %q:\n%s", want, b.String())
		}
	}
	if !strings.HasSuffix(b.String(), "# EOF\n") {
		t.Error("the end is missing, without which OpenMetrics isn't complete")
	}
}

func TestChartHasEachKind(t *testing.T) {
	var b strings.Builder
	must.Succeed(t, newResult().WriteSVG(&b))
	for _, want := range []string{">force-pod (100)<", ">50 ms<", ">8 s<", ">manager (1)<", ">nobody else was elected<"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the chart lacks %q:\n%s", want, b.String())
		}
	}
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("the chart isn't valid XML: %v", err)
		}
	}
}
