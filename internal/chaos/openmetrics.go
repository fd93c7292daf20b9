package chaos

import (
	"fmt"
	"io"
	"strings"
)

// WriteOpenMetrics writes the result as OpenMetrics, for a Pushgateway or a text file of the node exporter. It is also Prometheus' text format.
func (r *Result) WriteOpenMetrics(w io.Writer) error {
	var b strings.Builder
	subject := fmt.Sprintf("namespace=%q,group=%q", r.Namespace, r.Group)
	if r.Leader != "" {
		subject = fmt.Sprintf("namespace=%q,leader=%q", r.Namespace, r.Leader)
	}
	family := func(name, help string, write func(name string)) {
		name = "conclave_chaos_" + name
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name)
		write(name)
	}
	family("faults", "Faults that were injected, or changes of the leader that were observed.", func(name string) {
		for i := range r.Summary {
			fmt.Fprintf(&b, "%s{%s,kind=%q} %d\n", name, subject, r.Summary[i].Kind, r.Summary[i].Count)
		}
	})
	for _, m := range []struct {
		name, help string
		of         func(*Summary) *Distribution
	}{
		{"elected", "Time from a fault until another process was elected.", func(s *Summary) *Distribution { return s.Elected }},
		{"settled", "Time from a fault until everything was up again and agreed.", func(s *Summary) *Distribution { return s.Settled }},
		{"two_leaders", "Time for which two processes led at once, at least, in those faults in which they did.", func(s *Summary) *Distribution { return s.TwoLeaders }},
	} {
		family(m.name+"_seconds", m.help, func(name string) {
			for i := range r.Summary {
				s := &r.Summary[i]
				if d := m.of(s); d != nil {
					for _, q := range []struct {
						name  string
						value float64
					}{{"0.5", d.Median}, {"0.99", d.P99}, {"1", d.Max}} {
						fmt.Fprintf(&b, "%s{%s,kind=%q,quantile=%q} %g\n", name, subject, s.Kind, q.name, q.value/1000)
					}
				}
			}
		})
	}
	family("violations", "Violated invariants.", func(name string) { fmt.Fprintf(&b, "%s{%s} %d\n", name, subject, len(r.Violations)) })
	family("exceeded_budgets", "Budgets that were exceeded.", func(name string) { fmt.Fprintf(&b, "%s{%s} %d\n", name, subject, len(r.Exceeded)) })
	b.WriteString("# EOF\n")
	_, err := io.WriteString(w, b.String())
	return err
}
