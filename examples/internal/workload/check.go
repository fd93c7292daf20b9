package workload

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"time"

	"github.com/conclave-dev/conclave/examples/internal/ledger"
)

// checkInterval is the time between two reads of a ledger that must make progress.
const checkInterval = 200 * time.Millisecond

// readMax limits a read of a ledger.
const readMax = time.Minute

// check reads a ledger, and prints whether the invariant holds.
func check(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("check", flag.ExitOnError)
	progress := flags.Duration("progress", 0, "also wait for a new write, and fail if there is none within this time")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("check needs the URL of a ledger, such as http://127.0.0.1:8090")
	}
	verdict, err := readLedger(ctx, flags.Arg(0), readMax)
	if err == nil && *progress > 0 {
		verdict, err = awaitWrite(ctx, flags.Arg(0), verdict.Total(), *progress)
	}
	if err == nil {
		fmt.Println(verdict.String())
	}
	return err
}

// awaitWrite waits until the ledger has more writes than before.
func awaitWrite(ctx context.Context, url string, before uint64, limit time.Duration) (ledger.Verdict, error) {
	for end := time.Now().Add(limit); ; {
		verdict, err := readLedger(ctx, url, readMax)
		switch {
		case err != nil || verdict.Total() > before:
			return verdict, err
		case time.Now().After(end):
			return verdict, fmt.Errorf("no progress: the ledger still has %d writes after %s", before, limit)
		}
		if !Pause(ctx, checkInterval) {
			return verdict, context.Cause(ctx)
		}
	}
}

// readLedger returns the verdict, or an error if the invariant is violated. It checks the lines itself: a storage with
// a defect may judge itself wrongly, too.
func readLedger(ctx context.Context, url string, limit time.Duration) (verdict ledger.Verdict, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no complete response within %s", limit))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/ledger", nil)
	if err != nil {
		return verdict, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return verdict, fmt.Errorf("cannot read the ledger: %w", cmp.Or(context.Cause(ctx), err))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return verdict, fmt.Errorf("%s/ledger responded with status %s", url, response.Status)
	}
	checker := ledger.NewChecker()
	if err := checker.Read(response.Body); err != nil {
		return verdict, cmp.Or(context.Cause(ctx), err)
	}
	if verdict = checker.Verdict(); !verdict.OK {
		return verdict, errors.New(verdict.String())
	}
	return verdict, nil
}
