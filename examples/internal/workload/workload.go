// Package workload starts the examples: it has their flags, their HTTP server, and what they use to find each other.
package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/examples/internal/ledger"
)

// Process is one of the processes of an example.
type Process struct {
	// Group is the group in which the process takes part.
	Group string
	// Self is the name of the process in the group.
	Self string
	// Names are the names of all processes, in the order of the flag.
	Names  []string
	Ledger ledger.Client

	addresses map[string]string
	http      http.Client
}

// Program is what an example does.
type Program struct {
	// Handler serves the requests of the other processes. It may be nil.
	Handler http.Handler
	// Work is what each process does until ctx ends. It may be nil.
	Work func(ctx context.Context)
	// Lead is what the coordinator does: see client.Run.
	Lead func(ctx context.Context, token uint64) error
}

// Main runs an example with the arguments of the command line.
func Main(name string, build func(*Process) Program) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := start(ctx, name, os.Args[1:], build); err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func start(ctx context.Context, name string, arguments []string, build func(*Process) Program) error {
	if len(arguments) > 0 {
		switch arguments[0] {
		case "ledger":
			return runLedger(ctx, arguments[1:])
		case "check":
			return check(ctx, arguments[1:])
		}
	}
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	hostname, _ := os.Hostname() // In a pod, the name of the pod.
	p := &Process{http: http.Client{Transport: newTransport()}}
	p.Ledger.HTTP.Transport = newTransport()
	if len(arguments) > 0 && !strings.HasPrefix(arguments[0], "-") {
		return fmt.Errorf("got argument %q, want only flags, or one of the commands ledger and check", arguments[0])
	}
	flags.StringVar(&p.Group, "group", name, "the group in which this process takes part")
	flags.StringVar(&p.Self, "self", hostname, "the name of this process in the group")
	flags.StringVar(&p.Ledger.URL, "ledger", "http://127.0.0.1:8090", "the URL of the ledger")
	peers := flags.String("peers", "", "all processes, such as a=127.0.0.1:8081,b=127.0.0.1:8082")
	listen := flags.String("listen", ":8080", "the address for requests of other processes")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if err := p.setPeers(*peers); err != nil {
		return err
	}
	return p.run(ctx, *listen, build(p))
}

func (p *Process) setPeers(list string) error {
	p.addresses = map[string]string{}
	for peer := range strings.SplitSeq(list, ",") {
		name, address, ok := strings.Cut(peer, "=")
		if !ok || name == "" || address == "" {
			return fmt.Errorf("--peers must be a list such as a=127.0.0.1:8081,b=127.0.0.1:8082, got %q", list)
		}
		p.Names = append(p.Names, name)
		p.addresses[name] = address
	}
	if p.addresses[p.Self] == "" {
		return fmt.Errorf("--peers must contain this process, %s (see --self), got %q", p.Self, list)
	}
	return nil
}

func (p *Process) run(ctx context.Context, listen string, program Program) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	if program.Handler != nil {
		mux.Handle("/", program.Handler)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	go func() { stop(serve(ctx, listener, mux)) }()
	if program.Work != nil {
		go program.Work(ctx)
	}
	err = client.Run(ctx, p.Group, program.Lead)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// serve serves until ctx ends.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return server.Serve(listener)
}

// runLedger runs the ledger of an example.
func runLedger(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("ledger", flag.ExitOnError)
	listen := flags.String("listen", ":8090", "the address of the server")
	path := flags.String("file", "ledger.jsonl", "the file")
	unfenced := flags.Bool("unfenced", false, "accept writes with outdated tokens, to see which harm that does")
	delay := flags.Duration("delay", 0, "how long each write takes")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	server, err := ledger.Open(*path)
	if err != nil {
		return err
	}
	defer server.Close()
	server.Unfenced, server.Delay = *unfenced, *delay
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	return serve(ctx, listener, server)
}

// Coordinator returns the name of the coordinator, as far as this process's agent knows.
func (p *Process) Coordinator(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	state, err := client.Leader(ctx, p.Group)
	if err == nil && state.Coordinator == "" {
		err = errors.New("the group has no coordinator")
	}
	return state.Coordinator, err
}

// Leads reports whether this process is coordinator with a token. This was true when its
// agent responded, so it was true at some time after the call.
func (p *Process) Leads(ctx context.Context, token uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	state, err := client.Leader(ctx, p.Group)
	return err == nil && state.Leading && state.Token == token
}

// Stopped returns the result of Lead after an error. If the context of Lead has ended, the
// error has no further meaning. If the ledger has rejected the token, there is a later
// coordinator: the agent will notice, too, so Stopped waits until the tenure ends.
func Stopped(ctx context.Context, err error) error {
	fmt.Println("stops:", err)
	if errors.Is(err, ledger.ErrFenced) {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// callMax limits a request to another process.
const callMax = 500 * time.Millisecond

// StatusError is a response with another status than 200.
type StatusError struct {
	Status  int
	Message string
}

func (e *StatusError) Error() string { return fmt.Sprintf("status %d: %s", e.Status, e.Message) }

// Call sends a request to another process as JSON, and decodes the response.
func (p *Process) Call(ctx context.Context, peer, path string, request, response any) error {
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.addresses[peer]+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := p.http.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10)) // The status says enough.
		return &StatusError{answer.StatusCode, string(bytes.TrimSpace(text))}
	}
	if response == nil {
		response = new(any)
	}
	return json.NewDecoder(answer.Body).Decode(response)
}

// Decode decodes the JSON of a request. If there is an error, it responds with that, and returns false.
func Decode(w http.ResponseWriter, r *http.Request, into any) bool {
	err := json.NewDecoder(r.Body).Decode(into)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return err == nil
}

// Respond responds with a value as JSON.
func Respond(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // The client has disconnected.
}

// Pause waits. It returns false if ctx ends before.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// newTransport ignores proxy settings.
func newTransport() *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute}
}
