package pluginenv

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// FakeAgent is the agent of a coordinator, until it receives the request to step down.
type FakeAgent struct {
	// Status and answer are the response to the request, and states are the events
	// that follow it.
	Status int
	Answer string
	States []string
	// Journal is that of the agent. An older agent has none.
	Journal string
	// Successor is the one in the request, which closes requested.
	Successor string
	Requested chan struct{}
}

func (a *FakeAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/v1/groups/ledger/watch"):
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "id: 1-1\ndata: {\"group\":\"ledger\",\"coordinator\":\"ledger-2\",\"term\":100}\n\n")
		w.(http.Flusher).Flush() //nolint:errcheck // httptest supports it
		select {
		case <-a.Requested:
		case <-r.Context().Done():
		}
		for i, state := range a.States {
			fmt.Fprintf(w, "id: 1-%d\ndata: %s\n\n", i+2, state)
		}
		w.(http.Flusher).Flush() //nolint:errcheck // httptest supports it
		<-r.Context().Done()
	case r.Method == http.MethodPost && r.URL.Path == "/v1/groups/ledger/step-down":
		var request struct{ To string }
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a.Successor = request.To
		close(a.Requested)
		w.WriteHeader(a.Status)
		fmt.Fprint(w, a.Answer)
	case a.Journal != "" && r.URL.Path == "/v1/groups/ledger/journal":
		fmt.Fprint(w, a.Journal)
	default:
		http.NotFound(w, r)
	}
}

// Statuses of an agent: before an election, and after it.
const (
	Vacant    = `{"group":"ledger","coordinator":"","term":100}`
	Successor = `{"group":"ledger","coordinator":"ledger-1","priority":20,"term":101}`
)
