package benchmark

import (
	"os"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestUsageOfThisProcess(t *testing.T) {
	before, err := UsageOf(os.Getpid())
	must.Succeed(t, err)
	if before.Resident < 1<<20 || before.Peak < before.Resident/2 || before.CPU <= 0 {
		t.Errorf("got usage %+v, want positive values", before)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		after, err := UsageOf(os.Getpid())
		must.Succeed(t, err)
		if after.CPU > before.CPU {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the CPU time didn't increase within a minute")
		}
	}
	if _, err := UsageOf(-1); err == nil {
		t.Error("got no error for process -1")
	}
}
