package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	// ledgerPod stores each use of a lock. See examples/README.md.
	ledgerPod = group + "-ledger-0"
	// checkCommand checks in the pod that no lock was held twice.
	checkCommand = "/lock-service check http://127.0.0.1:8090"
)

// locks is what the check of the ledger says.
type locks struct {
	verdict string
	tenures int // Coordinators that have granted locks. A pod that leads again counts again.
}

// tenures is the part of the verdict that says how many coordinators have granted locks: each has a fencing token.
var tenures = regexp.MustCompile(`with (\d+) tokens$`)

// errViolated is returned if a lock was held twice.
var errViolated = errors.New("THE INVARIANT IS VIOLATED")

// readLocks checks the ledger.
func (s *demo) readLocks(ctx context.Context) (locks, error) {
	arguments := append([]string{"exec", "--namespace", namespace, ledgerPod, "--"}, strings.Fields(checkCommand)...)
	output, err := s.cluster.kubectl(ctx, arguments...).CombinedOutput()
	text := strings.TrimSpace(string(output))
	if _, violation, found := strings.Cut(text, "violated: "); found {
		return locks{}, fmt.Errorf("%w: %s", errViolated, violation)
	}
	count := tenures.FindStringSubmatch(text)
	if err == nil && count == nil {
		err = errors.New("the verdict must end with the number of tokens")
	}
	if err != nil {
		return locks{}, fmt.Errorf("cannot check the ledger: %w: %s", err, text)
	}
	n, err := strconv.Atoi(count[1])
	return locks{text, n}, err
}

// awaitLocks waits until at least this number of coordinators have granted locks, and fails if a lock was held twice.
func (s *demo) awaitLocks(ctx context.Context, tenures int) (locks, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, waitShort, fmt.Errorf("timed out after %s waiting for the coordinator to grant locks", waitShort))
	defer cancel()
	for {
		now, err := s.readLocks(ctx)
		if errors.Is(err, errViolated) || err == nil && now.tenures >= tenures {
			return now, err
		}
		select {
		case <-time.After(time.Second / 2):
		case <-ctx.Done():
			return now, errors.Join(context.Cause(ctx), err)
		}
	}
}

// printLocks prints the verdict when at least this number of coordinators have granted locks.
func (s *demo) printLocks(ctx context.Context, tenures int) error {
	now, err := s.awaitLocks(ctx, tenures)
	if err == nil {
		s.printf("locks: the invariant %s", now.verdict)
	}
	return err
}
