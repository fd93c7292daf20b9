package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

// patience is how long anything may take that isn't measured.
const patience = 2 * time.Minute

// measurer has what all parts are measured with.
type measurer struct {
	options  *options
	progress io.Writer
	folder   string
}

func measure(ctx context.Context, o *options, progress io.Writer) (report *Report, err error) {
	if _, err := os.Stat(crds); err != nil {
		return nil, fmt.Errorf("run it at the top of the repository, by make bench-operator: %w", err)
	}
	folder, err := os.MkdirTemp("", "bench-operator-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	m := &measurer{options: o, progress: progress, folder: folder}
	report = &Report{Machine: benchmark.ThisMachine()}
	if slices.Contains(o.parts, leasePart) || slices.Contains(o.parts, scalePart) {
		if err := m.onServer(ctx, report); err != nil {
			return nil, err
		}
	}
	if slices.Contains(o.parts, clusterPart) {
		if report.Cluster, err = m.cluster(ctx); err != nil {
			return nil, fmt.Errorf("cluster: %w", err)
		}
	}
	return report, nil
}

// onServer does what takes an API server and no cluster.
func (m *measurer) onServer(ctx context.Context, report *Report) (err error) {
	m.say("starting an API server")
	s, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if slices.Contains(m.options.parts, leasePart) {
		if report.Lease, err = m.lease(ctx, s); err != nil {
			return fmt.Errorf("lease: %w", err)
		}
	}
	if slices.Contains(m.options.parts, scalePart) {
		if report.Scale, err = m.scale(ctx, s); err != nil {
			return fmt.Errorf("scale: %w", err)
		}
	}
	return nil
}

func (m *measurer) say(format string, arguments ...any) {
	fmt.Fprintf(m.progress, "bench-operator: "+format+"\n", arguments...)
}
