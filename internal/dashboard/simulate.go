package dashboard

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/dashboard/whatif"
)

// simulating is locked during a simulation. One takes at most some 20 ms, so that requests
// can wait for each other, and together they use one core.
var simulating sync.Mutex

// serveWhatIf responds to a request such as ?down=ledger-4&down=ledger-3&micros=1000 with
// what happens if these members of a group crash and messages take this time. With &silent, their node fails.
func serveWhatIf(w http.ResponseWriter, r *http.Request, g *v1.ElectionGroup) {
	if g == nil {
		respond(w, http.StatusNotFound, result{Error: "there is no such group"})
		return
	}
	query := r.URL.Query()
	micros, err := strconv.ParseInt(query.Get("micros"), 10, 32)
	if err != nil {
		respond(w, http.StatusBadRequest, result{Error: "micros must be a number of microseconds"})
		return
	}
	simulating.Lock()
	defer simulating.Unlock()
	answer, err := whatif.Ask(g, whatif.Question{Down: query["down"], Silent: query.Has("silent"), Latency: time.Duration(micros) * time.Microsecond})
	if err != nil {
		respond(w, http.StatusBadRequest, result{Error: err.Error()})
		return
	}
	respond(w, http.StatusOK, answer)
}
