package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/conclave-dev/conclave/internal/chaos"
)

// write writes all results so far.
func (s *suite) write(all []*chaos.Result) error {
	if err := os.MkdirAll(s.results, 0o750); err != nil {
		return err
	}
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	var faults []chaos.Fault
	for _, r := range all {
		faults = append(faults, r.Faults...)
	}
	summaries := chaos.Summarize(faults)
	chart := chaos.Chart(fmt.Sprintf("Failover in %d faults", len(faults)), summaries)
	chart.Note = machine()
	for name, content := range map[string][]byte{
		"chaos.json": append(text, '\n'), "chaos.svg": []byte(chart.SVG()), "chaos.md": page(all, summaries, len(faults)),
	} {
		if err := os.WriteFile(filepath.Join(s.results, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// page is a Markdown document.
func page(all []*chaos.Result, summaries []chaos.Summary, faults int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Chaos tests: results\n\nWritten by `make chaos`; [chaos.md](../chaos.md) describes the faults and invariants. Machine: %s.\n\n", machine())
	violations := 0
	for _, r := range all {
		violations += len(r.Violations)
	}
	fmt.Fprintf(&b, "%d faults in %d groups of five pods. Violated invariants: %d.\n\n## All groups\n\n", faults, len(all), violations)
	chaos.MarkdownTable(&b, summaries)
	b.WriteString("![Failover times by kind of fault](chaos.svg)\n\n## Each group\n\n| algorithm | safety | seed | faults | violations |\n|---|---|---|---|---|\n")
	for _, r := range all {
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d |\n", r.Algorithm, r.Safety, r.Seed, len(r.Faults), len(r.Violations))
	}
	for _, r := range all {
		for _, v := range r.Violations {
			fmt.Fprintf(&b, "\n- %s, %s, seed %d: %s", r.Algorithm, r.Safety, r.Seed, v)
		}
	}
	if len(all) > 0 {
		for _, k := range chaos.Kinds() {
			if reason := all[0].NotPossible[k.Name]; reason != "" {
				fmt.Fprintf(&b, "\nFaults of kind `%s` were not possible: %s.", k.Name, reason)
			}
		}
	}
	return []byte(strings.TrimRight(b.String(), "\n") + "\n")
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
	load, _ := os.ReadFile("/proc/loadavg") // Only Linux has it.
	average, _, _ := strings.Cut(string(load), " ")
	return fmt.Sprintf("%d CPUs (%s), %s, load average %s at the end", runtime.NumCPU(), model, runtime.GOOS, average)
}
