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
	"time"
)

//go:embed assets
var embedded embed.FS

// policy allows the page to load and connect to what this server serves, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// keepAlive is the interval of comments on idle streams. The page considers the server
// lost after a few of them.
const keepAlive = 5 * time.Second

// writeTimeout bounds how long a page may take to read an event.
const writeTimeout = 30 * time.Second

// NewHandler serves the page and its events for the groups in the store. It accepts
// only requests that are addressed to localhost at this port: a web site whose name
// resolves to a loopback address has another name.
func NewHandler(store *Store, port int) http.Handler {
	assets, err := fs.Sub(embedded, "assets")
	if err != nil {
		panic(err) // The folder is embedded.
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(assets))
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, r *http.Request) { streamAll(w, r, store) })
	mux.HandleFunc("GET /events/{namespace}/{name}", func(w http.ResponseWriter, r *http.Request) { streamGroup(w, r, store) })
	return guard(mux, port)
}

// guard refuses requests of other sites, and sets the headers of all responses.
func guard(next http.Handler, port int) http.Handler {
	hosts := map[string]bool{}
	for _, host := range []string{"127.0.0.1", "::1", "localhost"} {
		hosts[net.JoinHostPort(host, fmt.Sprint(port))] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		if !hosts[r.Host] {
			http.Error(w, fmt.Sprintf("this server is http://127.0.0.1:%d/, not %q", port, r.Host), http.StatusMisdirectedRequest)
			return
		}
		if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
			http.Error(w, "other web sites cannot read this server", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// stream writes server-sent events.
type stream struct {
	w      http.ResponseWriter
	flush  *http.ResponseController
	buffer bytes.Buffer
}

func newStream(w http.ResponseWriter) *stream {
	w.Header().Set("Content-Type", "text/event-stream")
	return &stream{w: w, flush: http.NewResponseController(w)}
}

// add adds an event to what send sends.
func (s *stream) add(event string, data any) {
	text, err := json.Marshal(data)
	if err != nil {
		panic(err) // The types can be encoded.
	}
	fmt.Fprintf(&s.buffer, "event: %s\ndata: %s\n\n", event, text)
}

func (s *stream) send() error {
	_ = s.flush.SetWriteDeadline(time.Now().Add(writeTimeout)) // Recorders in tests have none.
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
			s.add("alive", struct{}{})
		}
	}
}

// streamAll sends the summaries of all groups, and then those that change.
func streamAll(w http.ResponseWriter, r *http.Request, store *Store) {
	sub := store.subscribe("")
	defer store.unsubscribe(sub)
	s := newStream(w)
	groups, connection := store.all()
	summaries := make([]Summary, 0, len(groups))
	for _, g := range groups {
		summaries = append(summaries, NewSummary(g))
	}
	s.add("connection", connection)
	s.add("groups", summaries)
	s.run(r.Context(), store, sub, func(c change) {
		if c.group == nil {
			s.add("deleted", c.key)
		} else {
			s.add("group", NewSummary(c.group))
		}
	})
}

// streamGroup sends the details of one group whenever it changes, and null when it doesn't exist.
func streamGroup(w http.ResponseWriter, r *http.Request, store *Store) {
	key := Key(r.PathValue("namespace") + "/" + r.PathValue("name"))
	sub := store.subscribe(key)
	defer store.unsubscribe(sub)
	s := newStream(w)
	g, connection := store.get(key)
	s.add("connection", connection)
	add := func(c change) {
		if c.group == nil {
			s.add("detail", nil)
		} else {
			s.add("detail", NewDetail(c.group))
		}
	}
	add(change{key, g})
	s.run(r.Context(), store, sub, add)
}
