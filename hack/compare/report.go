package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"text/template"
	"time"

	_ "embed"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

// Report contains the results of one run.
type Report struct {
	Machine, CPU string
	Versions     []string
	// LoadBefore and LoadAfter are load averages. Busy is the share of the machine that was in use before anything was
	// started, in percent.
	LoadBefore, LoadAfter string
	Busy                  float64
	Rounds, Candidates    int
	// DelaysAlone and DelaysTogether are how late a process was woken that slept, in milliseconds, while systems were
	// measured alone and together.
	DelaysAlone, DelaysTogether benchmark.Series
	Failovers                   []Failover
	Outages                     []Outage
	Idle                        []Idle
	LeftOut, Failures           []string
	// Remark was written by a person who has read the report.
	Remark string `json:",omitempty"`
}

// Failover contains the results of a fault for a system, in milliseconds.
type Failover struct {
	System, Fault string
	Rounds        int
	// Took is nil if the survivors never agreed in time. Late counts such rounds.
	Took  *benchmark.Series
	Late  int
	Limit float64
	// Two counts the rounds in which two candidates at once said that they lead, for TwoMax at most.
	Two    int
	TwoMax float64
}

// Idle is what a candidate costs while nothing happens, with all its processes. It is the mean of all candidates.
type Idle struct {
	System                   string
	Groups                   int
	Members                  int     `json:",omitempty"`
	CPU, Resident            float64 // in percent of a core, and in MiB
	Requests, Packets, Bytes float64 // per second
}

func newFailover(of system, f fault, outcomes []outcome) Failover {
	result := Failover{System: of.name, Fault: f.name, Rounds: len(outcomes), Limit: benchmark.Millis(of.limit)}
	var took []time.Duration
	for _, o := range outcomes {
		if o.late {
			result.Late++
		} else {
			took = append(took, o.took)
		}
		if o.two > 0 {
			result.Two++
			result.TwoMax = max(result.TwoMax, benchmark.Millis(o.two))
		}
	}
	result.Took = benchmark.NewSeries(took)
	return result
}

func (f Failover) String() string {
	text := "never"
	if f.Took != nil {
		text = fmt.Sprintf("median %s, p99 %s, max %s", duration(f.Took.Median), duration(f.Took.P99), duration(f.Took.Max))
	}
	if f.Late > 0 {
		text += fmt.Sprintf(", %d of %d not within %s", f.Late, f.Rounds, duration(f.Limit))
	}
	if f.Two > 0 {
		text += fmt.Sprintf(", two leaders in %d of %d, for up to %s", f.Two, f.Rounds, duration(f.TwoMax))
	}
	return text
}

// duration writes milliseconds with two or three digits.
func duration(ms float64) string {
	switch {
	case ms >= 999.5:
		return fmt.Sprintf("%.3g s", ms/1000)
	case ms >= 10:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 0.095:
		return fmt.Sprintf("%.2g ms", ms)
	default:
		return fmt.Sprintf("%.2g µs", ms*1000)
	}
}

// delayLimit is the longest delay in milliseconds, in 99 % of all cases, with which the systems that are measured
// together are measured fairly. They have timeouts of at least a second.
const delayLimit = 20

// watchDelays measures how late a sleeping process is woken, until the function that it returns is called.
func watchDelays() (stop func() benchmark.Series) {
	const sleep = 10 * time.Millisecond
	end, delays := make(chan struct{}), make(chan []time.Duration)
	go func() {
		var all []time.Duration
		for {
			began := time.Now()
			select {
			case <-time.After(sleep):
				all = append(all, time.Since(began)-sleep)
			case <-end:
				delays <- all
				return
			}
		}
	}()
	return func() benchmark.Series {
		close(end)
		if series := benchmark.NewSeries(<-delays); series != nil {
			return *series
		}
		return benchmark.Series{}
	}
}

// busyLimit is the share of the machine in percent that others may use. For a minute, describeMachine waits until they
// don't use more.
const (
	busyLimit     = 5
	quietAttempts = 20
)

// describeMachine fills in the facts about the machine. It must run before anything is started.
func (r *Report) describeMachine(ctx context.Context) error {
	r.Machine, r.LoadBefore = benchmark.Machine(), loadAverage()
	info, _ := os.ReadFile("/proc/cpuinfo") // Some architectures have no name there.
	for line := range strings.Lines(string(info)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			r.CPU = strings.TrimSpace(value)
		}
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if slices.Contains([]string{
				"k8s.io/client-go", "github.com/hashicorp/raft", "go.etcd.io/etcd/client/v3",
			}, module.Path) {
				r.Versions = append(r.Versions, module.Path+" "+module.Version)
			}
		}
	}
	for range quietAttempts { // What ran before may be ending.
		var err error
		if r.Busy, err = busy(ctx, 3*time.Second); err != nil || r.Busy <= busyLimit {
			return err
		}
	}
	return nil
}

func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg") // Every Linux has it.
	fields := strings.Fields(string(text))
	return strings.Join(fields[:min(3, len(fields))], ", ")
}

// busy returns the share of the processors' time that is in use, in percent.
func busy(ctx context.Context, period time.Duration) (float64, error) {
	var idle, sum [2]float64
	for i := range 2 {
		text, err := os.ReadFile("/proc/stat")
		if err != nil {
			return 0, err
		}
		var times [8]float64 // user, nice, system, idle, iowait, irq, softirq, steal
		if _, err := fmt.Sscanf(string(text), "cpu %g %g %g %g %g %g %g %g", &times[0], &times[1], &times[2], &times[3],
			&times[4], &times[5], &times[6], &times[7]); err != nil {
			return 0, fmt.Errorf("cannot parse /proc/stat: %w", err)
		}
		for _, t := range times {
			sum[i] += t
		}
		idle[i] = times[3] + times[4]
		if i == 0 {
			if err := benchmark.Wait(ctx, period); err != nil {
				return 0, err
			}
		}
	}
	return 100 * (1 - (idle[1]-idle[0])/max(1, sum[1]-sum[0])), nil
}

// sort sorts all results by the order of the systems. They were measured at the same time.
func (r *Report) sort() {
	names := allNames()
	slices.SortStableFunc(r.Failovers, func(a, b Failover) int {
		return cmp.Compare(slices.Index(names, a.System), slices.Index(names, b.System))
	})
	slices.SortStableFunc(r.Outages, func(a, b Outage) int {
		return cmp.Compare(slices.Index(names, a.System), slices.Index(names, b.System))
	})
	slices.SortStableFunc(r.Idle, func(a, b Idle) int {
		return cmp.Compare(slices.Index(names, a.System), slices.Index(names, b.System))
	})
	slices.Sort(r.Failures)
}

//go:embed report.md.tmpl
var markdown string

// write writes the report as Markdown, JSON and SVG.
func (r *Report) write(output string) error {
	base := filepath.Base(output)
	err := writeReport(output, markdown, r, template.FuncMap{
		"failover": func(system, fault string) *Failover {
			return find(r.Failovers, func(f *Failover) bool { return f.System == system && f.Fault == fault })
		},
		"systems": r.measured, "beyond": r.beyondFloor, "chart": func() string { return base + ".svg" },
		"idlechart": func() string { return base + "-idle.svg" },
	})
	return errors.Join(err, publish(output+".svg", failoverChart(r.Failovers, faults)),
		publish(output+"-idle.svg", idleChart(r.Idle)))
}

// picture is that of the README.
var picture = filepath.Join("docs", "images", "failover.svg")

// draw writes the published reports and the README's picture again, from the results in their JSON files.
func draw(folder string) error {
	var compared Report
	var reconciled Reconciling
	for name, report := range map[string]any{
		compareReport: &compared, operatorsReport: &reconciled,
	} {
		text, err := os.ReadFile(filepath.Join(folder, name+".json"))
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, report); err != nil {
			return fmt.Errorf("%s.json: %w", name, err)
		}
	}
	return errors.Join(
		compared.write(filepath.Join(folder, compareReport)),
		reconciled.write(filepath.Join(folder, operatorsReport)),
		publish(picture, failoverChart(compared.Failovers, faults[:1])),
	)
}

// find returns the first element that is wanted, or nil.
func find[T any](all []T, wanted func(*T) bool) *T {
	for i := range all {
		if wanted(&all[i]) {
			return &all[i]
		}
	}
	return nil
}

// allFaults returns the columns of tables.
func allFaults() []string { return slices.Concat(faultNames(false), faultNames(true)) }

// writeReport writes a report as Markdown and JSON.
func writeReport(output, markdown string, report any, functions template.FuncMap) error {
	parsed, err := template.New("").Funcs(template.FuncMap{"ms": duration, "title": titleOf, "faults": allFaults}).
		Funcs(functions).Parse(markdown)
	if err != nil {
		return err
	}
	var text strings.Builder
	if err := parsed.Execute(&text, report); err != nil {
		return err
	}
	encoded, err := json.MarshalIndent(report, "", "  ")
	return errors.Join(err, publish(output+".md", text.String()), publish(output+".json", string(encoded)+"\n"))
}

func publish(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // The report is public.
		return err
	}
	return os.WriteFile(path, []byte(content), 0o644) //nolint:gosec // The report is public.
}

func titleOf(name string) string {
	of, err := systemNamed(name)
	if err != nil {
		return name
	}
	return of.title
}

// setting describes a system for the report.
type setting struct {
	Title, Text string
	Copies      int
}

// measured returns the settings of the systems with results.
func (r *Report) measured() (all []setting) {
	for _, s := range systems {
		if slices.ContainsFunc(r.Failovers, func(f Failover) bool { return f.System == s.name }) {
			all = append(all, setting{s.title, s.settings, s.copies})
		}
	}
	return all
}

// beyondFloor returns how much more memory a candidate needs than that of the floor, which is the same program.
func (r *Report) beyondFloor(i Idle) string {
	at := slices.IndexFunc(r.Idle, func(i Idle) bool { return i.System == "floor" })
	if at < 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", i.Resident-r.Idle[at].Resident)
}
