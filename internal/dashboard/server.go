package dashboard

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"github.com/conclave-dev/conclave/internal/clusteraccess/operatorlease"
)

//go:embed assets
var embedded embed.FS

// keepAlive is the interval of events on idle streams. Without any, the page considers the server
// lost when what it shows is stale.
const keepAlive = operatorlease.StaleAfter / 3

// writeTimeout bounds how long a page may take to read an event.
const writeTimeout = 30 * time.Second

// NewHandler serves the page and its events for the groups in the store, at this port of localhost. It permits no
// changes if actions is nil. grafana is the address of a Grafana with the dashboards of Conclave, or empty.
func NewHandler(store *Store, port int, actions *Actions, grafana string) http.Handler {
	assets, err := fs.Sub(embedded, "assets")
	if err != nil {
		panic(err) // The folder is embedded.
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(assets))
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, r *http.Request) { streamGroups(w, r, store) })
	mux.HandleFunc("GET /events/{namespace}/{name}", func(w http.ResponseWriter, r *http.Request) {
		streamGroup(w, r, store, grafana)
	})
	actions.register(mux, store)
	return guard(mux, port)
}

// stream writes server-sent events.
type stream struct {
	now    func() time.Time
	w      http.ResponseWriter
	flush  *http.ResponseController
	buffer bytes.Buffer
}

func newStream(w http.ResponseWriter, now func() time.Time) *stream {
	w.Header().Set("Content-Type", "text/event-stream")
	s := &stream{now: now, w: w, flush: http.NewResponseController(w)}
	_ = s.flush.SetReadDeadline(time.Time{}) // The request has been read. Recorders in tests have no deadlines.
	s.addAlive()
	return s
}

// add adds an event to what send sends.
func (s *stream) add(event string, data any) {
	text, err := json.Marshal(data)
	if err != nil {
		panic(err) // The types can be encoded.
	}
	fmt.Fprintf(&s.buffer, "event: %s\ndata: %s\n\n", event, text)
}

// addAlive adds the time, because the clock of the page may be wrong, and after which silence the page is stale.
func (s *stream) addAlive() {
	s.add("alive", struct {
		Now         int64 `json:"now"`
		StaleMillis int64 `json:"staleMillis"`
	}{s.now().UnixMilli(), operatorlease.StaleAfter.Milliseconds()})
}

func (s *stream) send() error {
	_ = s.flush.SetWriteDeadline(time.Now().Add(writeTimeout)) // As above.
	if _, err := s.w.Write(s.buffer.Bytes()); err != nil {
		return err
	}
	s.buffer.Reset()
	return s.flush.Flush()
}

// run sends the changes of a subscriber until the page disconnects.
func (s *stream) run(ctx context.Context, store *Store, sub *subscriber, add func(change)) {
	ticker := time.NewTicker(keepAlive)
	defer ticker.Stop()
	for s.send() == nil {
		select {
		case <-ctx.Done():
			return
		case <-sub.wake:
			changes, connection := store.take(sub)
			for _, c := range changes {
				add(c)
			}
			if connection != nil {
				s.add("connection", connection)
			}
		case <-ticker.C:
			s.addAlive()
		}
	}
}

// streamGroups sends the summaries of the groups, and then those that change.
func streamGroups(w http.ResponseWriter, r *http.Request, store *Store) {
	sub := store.subscribe("")
	defer store.unsubscribe(sub)
	s := newStream(w, store.Now)
	groups, connection := store.all()
	summaries := []Summary{}
	for _, g := range groups {
		summaries = append(summaries, NewSummary(g, store.Now()))
	}
	s.add("connection", connection)
	s.add("groups", summaries)
	s.run(r.Context(), store, sub, func(c change) {
		if c.group == nil {
			s.add("deleted", c.key)
		} else {
			s.add("group", NewSummary(c.group, store.Now()))
		}
	})
}

// streamGroup sends the address of Grafana, and the details of the group that the path names whenever it changes. They
// are null while it doesn't exist.
func streamGroup(w http.ResponseWriter, r *http.Request, store *Store, grafana string) {
	key := pathKey(r)
	sub := store.subscribe(key)
	defer store.unsubscribe(sub)
	s := newStream(w, store.Now)
	g, connection := store.get(key)
	s.add("connection", connection)
	s.add("grafana", grafana)
	add := func(c change) {
		if c.group == nil {
			s.add("detail", nil)
		} else {
			s.add("detail", NewDetail(c.group, store.Now()))
		}
	}
	add(change{key, g})
	s.run(r.Context(), store, sub, add)
}

// pathKey returns the key of the group that the path of a request names.
func pathKey(r *http.Request) Key {
	return Key(r.PathValue("namespace") + "/" + r.PathValue("name"))
}
