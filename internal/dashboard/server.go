package dashboard

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
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

// NewHandler serves the page and its events for the groups in the store. It accepts
// only requests that are addressed to localhost at this port: a web site whose name
// resolves to a loopback address has another name. It permits no changes if actions is nil. grafana is
// that of the session.
func NewHandler(store *Store, port int, actions *Actions, grafana string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", Assets())
	mux.HandleFunc("GET /session", func(w http.ResponseWriter, _ *http.Request) { WriteSession(w, Session{Local: true, Grafana: grafana}) })
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, r *http.Request) {
		StreamGroups(w, r, store, func(string) bool { return true })
	})
	mux.HandleFunc("GET /events/{namespace}/{name}", func(w http.ResponseWriter, r *http.Request) { StreamGroup(w, r, store, true) })
	mux.HandleFunc("GET /what-if/{namespace}/{name}", func(w http.ResponseWriter, r *http.Request) { ServeWhatIf(w, r, store.Get(PathKey(r))) })
	actions.register(mux, store)
	hosts := map[string]bool{}
	for _, host := range []string{"127.0.0.1", "::1", "localhost"} {
		hosts[net.JoinHostPort(host, fmt.Sprint(port))] = true
	}
	return Guard(mux, Site{
		Accepts: func(host string) bool { return hosts[host] }, Address: fmt.Sprintf("http://127.0.0.1:%d/", port), Forms: "'none'",
	})
}

// Assets serves the files of the page, which contain nothing secret.
func Assets() http.Handler {
	assets, err := fs.Sub(embedded, "assets")
	if err != nil {
		panic(err) // The folder is embedded.
	}
	return http.FileServerFS(assets)
}

// Session describes to the page whom it is served to.
type Session struct {
	// Local is whether the page is served to the user who started the server.
	Local bool `json:"local"`
	// User is the name of the user who has logged in.
	User string `json:"user,omitempty"`
	// Grafana is the address of a Grafana with the dashboards of Conclave, or empty.
	Grafana string `json:"grafana,omitempty"`
}

// ParseGrafana checks the address of a Grafana, which may be empty, and returns it without a slash at the end.
func ParseGrafana(address string) (string, error) {
	if u, err := url.Parse(address); address != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.RawQuery != "" || u.Fragment != "") {
		return "", fmt.Errorf("--grafana must be the address of Grafana, such as https://grafana.example.org, got %q", address)
	}
	return strings.TrimSuffix(address, "/"), nil
}

// WriteSession responds with a session.
func WriteSession(w http.ResponseWriter, s Session) { respond(w, http.StatusOK, s) }

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

// run sends the changes of a subscriber until the page disconnects or the context ends. In
// the second case, the page connects again at once.
func (s *stream) run(ctx context.Context, store *Store, sub *subscriber, add func(change)) {
	ticker := time.NewTicker(keepAlive)
	defer ticker.Stop()
	for s.send() == nil {
		select {
		case <-ctx.Done():
			s.add("ended", struct{}{})
			_ = s.send() // The page may be gone.
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

// StreamGroups sends the summaries of the groups in the visible namespaces, and then those
// that change. It ends with the context of the request.
func StreamGroups(w http.ResponseWriter, r *http.Request, store *Store, visible func(namespace string) bool) {
	sub := store.subscribe("")
	defer store.unsubscribe(sub)
	s := newStream(w, store.Now)
	groups, connection := store.all()
	summaries := []Summary{}
	for _, g := range groups {
		if visible(g.Namespace) {
			summaries = append(summaries, NewSummary(g, store.Now()))
		}
	}
	s.add("connection", connection)
	s.add("groups", summaries)
	s.run(r.Context(), store, sub, func(c change) {
		switch {
		case !visible(c.key.namespace()):
		case c.group == nil:
			s.add("deleted", c.key)
		default:
			s.add("group", NewSummary(c.group, store.Now()))
		}
	})
}

// StreamGroup sends the details of the group that the path names whenever it changes, and
// null when it doesn't exist or isn't visible. It ends with the context of the request.
func StreamGroup(w http.ResponseWriter, r *http.Request, store *Store, visible bool) {
	key := PathKey(r)
	sub := store.subscribe(key)
	defer store.unsubscribe(sub)
	s := newStream(w, store.Now)
	g, connection := store.get(key)
	s.add("connection", connection)
	add := func(c change) {
		if c.group == nil || !visible {
			s.add("detail", nil)
		} else {
			s.add("detail", NewDetail(c.group, store.Now()))
		}
	}
	add(change{key, g})
	s.run(r.Context(), store, sub, add)
}

// PathKey returns the key of the group that the path of a request names.
func PathKey(r *http.Request) Key {
	return Key(r.PathValue("namespace") + "/" + r.PathValue("name"))
}
