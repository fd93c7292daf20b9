package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// waitMax bounds waits that aren't measured. Only a failing benchmark reaches it.
const waitMax = 2 * time.Minute

// runner runs the benchmark.
type runner struct {
	options  *options
	progress io.Writer
	folder   string
}

// measure runs the benchmark.
func measure(ctx context.Context, o *options, progress io.Writer) (result *Scale, err error) {
	if _, err := os.Stat(crds); err != nil {
		return nil, fmt.Errorf("bench-operator must run at the top of the repository, use make bench-operator: %w", err)
	}
	folder, err := os.MkdirTemp("", "bench-operator-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	r := &runner{options: o, progress: progress, folder: folder}
	r.printf("starting an API server")
	s, err := startServer(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return r.scale(ctx, s)
}

// printf prints a line of progress.
func (r *runner) printf(format string, arguments ...any) {
	fmt.Fprintf(r.progress, "bench-operator: "+format+"\n", arguments...)
}
