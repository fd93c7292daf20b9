// Command token-ring passes a token around a ring of processes. The coordinator replaces
// the token when it is lost. See README.md.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/examples/internal/ledger"
	"github.com/conclave-dev/conclave/examples/internal/workload"
)

const (
	// use is how long a process keeps the token.
	use = 5 * time.Millisecond
	// The token is lost if it hasn't moved in so many surveys, one at each interval.
	surveysWithoutMove = 20
	surveyInterval     = 50 * time.Millisecond
	// surveyMax is how long a survey waits for the answers.
	surveyMax = 100 * time.Millisecond
)

// token is the right to write. Each generation is a new token, and hops count how often it
// was passed on.
type token struct {
	Generation uint64 `json:"generation"`
	Hop        uint64 `json:"hop"`
}

func (t token) compare(other token) int {
	return cmp.Or(cmp.Compare(t.Generation, other.Generation), cmp.Compare(t.Hop, other.Hop))
}

func main() {
	workload.Main("token-ring", func(p *workload.Process) workload.Program {
		s := &station{Process: p, tokens: make(chan token, 1)}
		mux := http.NewServeMux()
		mux.HandleFunc("POST /token", s.serveToken)
		mux.HandleFunc("POST /seen", s.serveSeen)
		return workload.Program{Handler: mux, Work: s.work, Lead: s.lead}
	})
}

// station is a process of the ring.
type station struct {
	*workload.Process

	mu sync.Mutex
	// seen is the latest token that has arrived here.
	seen token
	// tokens has the token that waits for work.
	tokens chan token
}

// serveToken accepts the token, unless a later one has been here.
func (s *station) serveToken(w http.ResponseWriter, r *http.Request) {
	var t token
	if !workload.Decode(w, r, &t) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.compare(s.seen) <= 0 {
		http.Error(w, fmt.Sprintf("a later token was here: %+v", s.seen), http.StatusConflict)
		return
	}
	s.seen = t
	select {
	case <-s.tokens: // An older one that still waits is void.
	default:
	}
	s.tokens <- t
	workload.Respond(w, t)
}

// serveSeen tells the coordinator which token was here last.
func (s *station) serveSeen(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	workload.Respond(w, s.seen)
}

// work uses each token that arrives, and passes it on.
func (s *station) work(ctx context.Context) {
	for {
		select {
		case t := <-s.tokens:
			if err := s.use(ctx, t); err != nil {
				fmt.Printf("drops token %+v: %v\n", t, err)
				continue
			}
			t.Hop++
			if err := s.pass(ctx, t); err != nil {
				fmt.Printf("loses token %+v: %v\n", t, err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// use is what only the holder of the token may do: it reads a number and writes the next.
// The ledger rejects a token as soon as a later one has been used.
func (s *station) use(ctx context.Context, t token) error {
	right := ledger.Entry{Resource: "ring", Token: t.Generation, Grant: t.Hop, By: s.Self}
	if err := s.Ledger.Claim(ctx, &right); err != nil {
		return err
	}
	workload.Pause(ctx, use)
	right.Seq++
	return s.Ledger.Write(ctx, right)
}

// pass passes the token to the next process that can be reached. If nobody knows whether
// that process has got it, pass doesn't try another one: there could then be two tokens.
// The token may be lost instead, which the coordinator notices.
func (s *station) pass(ctx context.Context, t token) error {
	self := slices.Index(s.Names, s.Self)
	for i := range s.Names {
		next := s.Names[(self+1+i)%len(s.Names)]
		err := s.Call(ctx, next, "/token", t, nil)
		if dial := new(net.OpError); errors.As(err, &dial) && dial.Op == "dial" {
			continue // There was no connection, so the process hasn't got the token.
		}
		return err
	}
	return errors.New("no process can be reached")
}

// lead replaces the token whenever it is lost.
func (s *station) lead(ctx context.Context, fencing uint64) error {
	right := ledger.Entry{Resource: "generations", Token: fencing, By: s.Self}
	err := s.Ledger.Claim(ctx, &right)
	generation := right.Seq
	fmt.Printf("watches token generation %d, fencing token %d\n", generation, fencing)
	var last token
	for still := 0; err == nil && workload.Pause(ctx, surveyInterval); still++ {
		if now := s.survey(ctx); now.compare(last) > 0 {
			last, still = now, 0
		}
		if still < surveysWithoutMove {
			continue
		}
		// The number of a generation is written once, by one coordinator: the ledger rejects
		// a former one. So each loss leads to one new token.
		generation, still = generation+1, 0
		right.Seq, right.Note = generation, fmt.Sprintf("replaces generation %d, last seen after %d hops", last.Generation, last.Hop)
		if err = s.Ledger.Write(ctx, right); err == nil {
			fmt.Println("creates token generation", generation)
			if failed := s.Call(ctx, s.Self, "/token", token{Generation: generation, Hop: 1}, nil); failed != nil {
				fmt.Println("token generation", generation, "is lost:", failed)
			}
		}
	}
	return workload.Stopped(ctx, err)
}

// survey returns the latest token that any process has seen.
func (s *station) survey(ctx context.Context) (latest token) {
	ctx, cancel := context.WithTimeout(ctx, surveyMax)
	defer cancel()
	answers := make(chan token, len(s.Names))
	for _, name := range s.Names {
		go func() {
			var seen token
			_ = s.Call(ctx, name, "/seen", struct{}{}, &seen) // A silent process counts as one that has seen nothing.
			answers <- seen
		}()
	}
	for range s.Names {
		if seen := <-answers; seen.compare(latest) > 0 {
			latest = seen
		}
	}
	return latest
}
