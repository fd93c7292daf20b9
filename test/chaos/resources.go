package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// usage is what the processes of a program use: the most of any of them.
type usage struct {
	Number  int `json:"number"`
	KiB     int `json:"kib"` // resident
	Files   int `json:"files"`
	Threads int `json:"threads"`
}

// resources are what Conclave uses while a group exists.
type resources struct {
	Programs map[string]usage `json:"programs"`
	// Objects is how many the API server has, without Events.
	Objects int `json:"objects"`
}

// processes prints the program of each process of Conclave on a node, its memory, open files and threads.
const processes = `for p in /proc/[0-9]*; do
	program=$(readlink $p/exe); case $program in /manager|/agent)
		echo $program $(sed -n 's/^VmRSS:\s*\([0-9]*\).*/\1/p' $p/status) $(ls $p/fd | wc -l) $(ls $p/task | wc -l);;
	esac
done`

// resources measures them, so that runs can be compared: a leak grows.
func (s *suite) resources(ctx context.Context) (*resources, error) {
	text, err := s.cluster.kubectl(ctx, "", "get", "--raw", "/metrics")
	if err != nil {
		return nil, err
	}
	all := &resources{Programs: map[string]usage{}}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if strings.HasPrefix(name, "apiserver_resource_objects{") && !strings.Contains(name, `resource="events"`) {
			number, _ := strconv.ParseFloat(value, 64)
			all.Objects += int(number)
		}
	}
	nodes, err := s.cluster.kubectl(ctx, "", "get", "nodes", "-o", "name")
	if err != nil || s.machines == "" {
		return all, err
	}
	for node := range strings.FieldsSeq(nodes) {
		text, err := execute(ctx, "", s.machines, "exec", strings.TrimPrefix(node, "node/"), "sh", "-c", processes)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(text) {
			var program string
			var u usage
			if _, err := fmt.Sscan(line, &program, &u.KiB, &u.Files, &u.Threads); err != nil {
				continue // It has ended meanwhile.
			}
			m := all.Programs[program]
			all.Programs[program] = usage{m.Number + 1, max(m.KiB, u.KiB), max(m.Files, u.Files), max(m.Threads, u.Threads)}
		}
	}
	return all, nil
}

// resourceTable compares the first and the last run.
func resourceTable(w io.Writer, all []*run) {
	measured := slices.DeleteFunc(slices.Clone(all), func(r *run) bool { return r.Resources == nil })
	if len(measured) == 0 {
		return
	}
	first, last := measured[0].Resources, measured[len(measured)-1].Resources
	fmt.Fprintf(w, "At the end of the first run and of the last one, the API server had %d and %d objects, without "+
		"Events. Of several processes, the most of any:\n\n"+
		"| | number | KiB | open files | threads |\n|---|---|---|---|---|\n", first.Objects, last.Objects)
	for _, name := range slices.Sorted(maps.Keys(last.Programs)) {
		a, b := first.Programs[name], last.Programs[name]
		fmt.Fprintf(w, "| %ss | %d, %d | %d, %d | %d, %d | %d, %d |\n", strings.TrimPrefix(name, "/"), a.Number,
			b.Number, a.KiB, b.KiB, a.Files, b.Files, a.Threads, b.Threads)
	}
	fmt.Fprintln(w)
}
