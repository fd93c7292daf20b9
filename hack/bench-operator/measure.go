package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// waitMax bounds waits that aren't measured. Only a failing benchmark reaches it.
const waitMax = 2 * time.Minute

// runner runs the parts of the benchmark.
type runner struct {
	options  *options
	progress io.Writer
	folder   string
}

// measure runs the benchmark. With an error, it also returns what it has measured before.
func measure(ctx context.Context, o *options, progress io.Writer) (report *Report, err error) {
	report = &Report{}
	if _, err := os.Stat(crds); err != nil {
		return report, fmt.Errorf("bench-operator must run at the top of the repository, use make bench-operator: %w", err)
	}
	folder, err := os.MkdirTemp("", "bench-operator-")
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	r := &runner{options: o, progress: progress, folder: folder}
	if slices.Contains(o.parts, leasePart) || slices.Contains(o.parts, scalePart) {
		if err := r.runOnServer(ctx, report); err != nil {
			return report, err
		}
	}
	if slices.Contains(o.parts, clusterPart) {
		if report.Cluster, err = r.cluster(ctx); err != nil {
			return report, fmt.Errorf("cluster: %w", err)
		}
	}
	return report, nil
}

// runOnServer runs the parts that need an API server but no cluster.
func (r *runner) runOnServer(ctx context.Context, report *Report) (err error) {
	r.printf("starting an API server")
	s, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if slices.Contains(r.options.parts, leasePart) {
		if report.Lease, err = r.lease(ctx, s); err != nil {
			return fmt.Errorf("lease: %w", err)
		}
	}
	if slices.Contains(r.options.parts, scalePart) {
		if report.Scale, err = r.scale(ctx, s); err != nil {
			return fmt.Errorf("scale: %w", err)
		}
	}
	return nil
}

// printf prints a line of progress.
func (r *runner) printf(format string, arguments ...any) {
	fmt.Fprintf(r.progress, "bench-operator: "+format+"\n", arguments...)
}
