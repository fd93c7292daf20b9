package supervise

import (
	"os"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestHelperIsKilledWithItsGroup when it isn't needed any more, or when there is another one.
func TestHelperIsKilledWithItsGroup(t *testing.T) {
	f, err := newFamily()
	must.Succeed(t, err)
	for range 2 {
		must.Succeed(t, f.startHelper("sleep 99 & sleep 99", os.Environ()))
	}
	f.killHelper()
	if !testwait.Within(testwait.Limit, time.Millisecond, f.reap) {
		t.Errorf("got processes %v, want none", children("self"))
	}
}
