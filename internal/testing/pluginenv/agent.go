package pluginenv

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// FakeAgent is the agent of a coordinator, until it receives the request to step down.
type FakeAgent struct {
	// Status and Answer are the response to the request.
	Status int
	Answer string
	// Journal is that of the agent.
	Journal string
	// Successor is the one in the request.
	Successor string
}

func (a *FakeAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/v1/groups/ledger/step-down":
		var request struct{ To string }
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a.Successor = request.To
		w.WriteHeader(a.Status)
		fmt.Fprint(w, a.Answer)
	case a.Journal != "" && r.URL.Path == "/v1/groups/ledger/journal":
		fmt.Fprint(w, a.Journal)
	default:
		http.NotFound(w, r)
	}
}

// Successor is the state of an agent after the election.
const Successor = `{"group":"ledger","coordinator":"ledger-1","priority":20,"term":101}`

// Journal has the election of Successor, which took 9.8 ms, and one before it.
const Journal = `{
	"group":"ledger","agent":"ledger-2","members":[{"name":"ledger-2"},{"name":"ledger-1"}],"steps":[
	{"at":"2026-11-20T12:00:00Z","input":"stopped","events":[{"kind":"resigns","peer":"ledger-0","term":90}]},
	{"at":"2026-11-20T12:00:01Z","input":"receive","events":[{"kind":"recognised","peer":"ledger-0","term":91}]},
	{"at":"2026-11-20T12:30:00Z","input":"stopped","events":[{"kind":"resigns","peer":"ledger-1","term":100}]},
	{"at":"2026-11-20T12:30:00.0098Z","input":"receive","events":[{"kind":"recognised","peer":"ledger-1","term":101}]}]}`
