package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/conclave-dev/conclave/internal/chaos"
)

// run is the result of a job.
type run struct {
	*chaos.Result

	Workload string `json:"workload"`
	// Seconds is the time from the creation of the group to its deletion, and Load is the load average of the machine at
	// the end.
	Seconds float64 `json:"seconds"`
	Load    float64 `json:"load"`
	Machine string  `json:"machine"`
	// Resources is what Conclave used at the end. It is nil after an error.
	Resources *resources `json:"resources,omitempty"`
	// Error is why not all faults were injected.
	Error string `json:"error,omitempty"`
}

// read reads the results of this name in a folder, if there are any.
func read[R any](folder, name string) (all []*R, err error) {
	text, err := os.ReadFile(filepath.Join(folder, name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	return all, err
}

// write writes all results so far, and a page with them.
func write[R any](folder, name string, all []*R, page []byte) error {
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // results aren't secret
		return err
	}
	text := []byte("[\n")
	for i, r := range all {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		text = append(text, line...)
		if i < len(all)-1 {
			text = append(text, ',')
		}
		text = append(text, '\n')
	}
	return errors.Join(os.WriteFile(filepath.Join(folder, name+".json"), append(text, "]\n"...), 0o644),
		os.WriteFile(filepath.Join(folder, name+".md"), page, 0o644)) //nolint:gosec // results aren't secret
}

func faultsOf(all []*run) (faults []chaos.Fault) {
	for _, r := range all {
		faults = append(faults, r.Faults...)
	}
	return faults
}

// injected returns the number of faults that weren't refused.
func injected(faults []chaos.Fault) (count int) {
	for i := range faults {
		if faults[i].Refused == "" {
			count++
		}
	}
	return count
}

// page is a Markdown document.
func page(all []*run, summaries []chaos.Summary) []byte {
	var b bytes.Buffer
	violations := 0
	for _, r := range all {
		violations += len(r.Violations)
	}
	fmt.Fprintf(&b, "# Chaos tests: results\n\nWritten by `make chaos`. [chaos.md](../chaos.md) describes the faults, "+
		"the invariants and the columns.\n\n"+
		"**Faults: %d. Violated invariants: %d.** The groups have five pods, which run the "+
		"[workloads](../../examples/README.md). %s\n\n",
		injected(faultsOf(all)), violations, circumstances(all))
	chaos.MarkdownTable(&b, summaries)
	share(&b, all, "election and safety mode", func(r *run) string { return r.Algorithm + r.Safety })
	share(&b, all, "workload", func(r *run) string { return r.Workload })
	resourceTable(&b, all)
	for _, r := range all {
		for _, v := range r.Violations {
			fmt.Fprintf(&b, "- Violated: %s, %s, %s, seed %d: %s\n", r.Algorithm, r.Safety, r.Workload, r.Seed, v)
		}
		if r.Error != "" {
			fmt.Fprintf(&b, "- Not completed: %s, %s, %s, seed %d: %s\n", r.Algorithm, r.Safety, r.Workload, r.Seed, r.Error)
		}
	}
	if names := missing(summaries); len(names) > 0 {
		fmt.Fprintf(&b, "Kinds of faults that weren't tested: %s.\n", strings.Join(names, ", "))
	}
	return []byte(strings.TrimRight(b.String(), "\n") + "\n")
}

// share says how many faults each group of runs had. Violations name their run.
func share(b *bytes.Buffer, all []*run, each string, key func(*run) string) {
	faults := map[string]int{}
	for _, r := range all {
		faults[key(r)] += injected(r.Faults)
	}
	if counts := slices.Sorted(maps.Values(faults)); len(counts) > 0 {
		fmt.Fprintf(b, "Faults of each %s: %d to %d, of %d.\n\n", each, counts[0], counts[len(counts)-1], len(counts))
	}
}

func missing(summaries []chaos.Summary) (names []string) {
	for _, k := range chaos.Kinds() {
		if !slices.ContainsFunc(summaries, func(s chaos.Summary) bool { return s.Kind == k.Name && s.Count > 0 }) {
			names = append(names, "`"+k.Name+"`")
		}
	}
	return names
}

// circumstances describes the machines, and how busy they were.
func circumstances(all []*run) string {
	if len(all) == 0 {
		return "Machine: " + machine() + "."
	}
	var loads []float64
	var machines []string
	for _, r := range all {
		loads, machines = append(loads, r.Load), append(machines, r.Machine)
	}
	slices.Sort(loads)
	slices.Sort(machines)
	return fmt.Sprintf("Machine: %s. The load average at the end of a run was %.1f (median), %.1f to %.1f.",
		strings.Join(slices.Compact(machines), "; "), loads[len(loads)/2], loads[0], loads[len(loads)-1])
}

// machine describes the machine.
func machine() string {
	model := "unknown CPU"
	text, _ := os.ReadFile("/proc/cpuinfo") // Without it, the model is unknown.
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease") // Only Linux has it.
	version, _, _ := strings.Cut(strings.TrimSpace(string(kernel)), "-")
	return strings.TrimSpace(fmt.Sprintf("%d CPUs (%s), %s %s", runtime.NumCPU(), model, runtime.GOOS, version))
}

// load returns the load average of the last minute.
func load() float64 {
	text, _ := os.ReadFile("/proc/loadavg") // Only Linux has it.
	average, _, _ := strings.Cut(string(text), " ")
	value, _ := strconv.ParseFloat(average, 64)
	return value
}
