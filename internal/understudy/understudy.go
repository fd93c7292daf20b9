// Package understudy stands in for the agents of pods: for the operator's
// benchmark, and for tests that need more agents than a machine can run.
//
// An understudy has an address, a certificate, and the agent's API for the
// operator. It takes the documents that it is given as an agent does, and reports
// them. What it doesn't do is elect: who leads is decreed.
package understudy

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conclave-dev/conclave/internal/control"
	"github.com/conclave-dev/conclave/internal/identity"
)

// Role is whom an understudy stands in for.
type Role struct {
	Namespace, Pod string
	// Groups are those that its certificate is for.
	Groups []string
	// Address is where it is awaited; an address of loopback, with control.OperatorPort as a rule.
	Address string
}

// Wardrobe makes the certificates.
type Wardrobe struct {
	Authority *identity.Authority
	// Authorities are the certificates of all authorities that are trusted, in PEM.
	Authorities []byte
}

// certified is how long a certificate lasts, as those of agents do.
const certified = 24 * time.Hour

// Agent is one understudy.
type Agent struct {
	role   Role
	server *http.Server
	life   uint32
	// traffic counts what went over its connections, as it was sent: encrypted.
	received, sent atomic.Int64
	streams        atomic.Int32

	mu     sync.Mutex
	groups map[string]*part
	// news is closed and replaced when something has changed.
	news chan struct{}
}

// part is what an understudy knows of one group. Changes number what there is to
// report, so that each stream knows what it has said.
type part struct {
	document control.Document
	decree   Decree
	withheld bool
	digest   string
	change   uint64
	changed  time.Time
	left     bool
}

// Decree says who leads a group. A coordinator that isn't named is none.
type Decree struct {
	Coordinator string
	Term        uint64
	ElectedAt   time.Time
	Electing    bool
	// Crashed are the members that are taken for dead.
	Crashed map[string]bool
}

// Start lets an understudy be found at its address until it is closed.
func Start(ctx context.Context, role Role, w Wardrobe) (*Agent, error) {
	var names identity.Names
	for _, group := range role.Groups {
		names = append(names, identity.Name{Domain: role.Namespace, Group: group, Member: role.Pod})
	}
	pair, err := w.Authority.Issue(names, certified)
	if err != nil {
		return nil, fmt.Errorf("understudy of %s: %w", role.Pod, err)
	}
	held, err := identity.Hold(pair, w.Authorities)
	if err != nil {
		return nil, fmt.Errorf("understudy of %s: %w", role.Pod, err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", role.Address)
	if err != nil {
		return nil, fmt.Errorf("understudy of %s: %w", role.Pod, err)
	}
	a := &Agent{role: role, life: uint32(time.Now().UnixMilli()), groups: map[string]*part{}, news: make(chan struct{})}
	a.server = &http.Server{Handler: a.handler(), ReadHeaderTimeout: patience, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = a.server.Serve(tls.NewListener(counted{listener, a}, held.Server())) }() // It ends when it is closed.
	return a, nil
}

const patience = 10 * time.Second

// Address is where it is awaited.
func (a *Agent) Address() string { return a.role.Address }

// Close ends it and its connections.
func (a *Agent) Close() error { return a.server.Close() }

// Traffic is how many bytes went over its connections.
func (a *Agent) Traffic() (received, sent int64) { return a.received.Load(), a.sent.Load() }

// Streams is how many streams of it have been told all that there was to say, and are open.
func (a *Agent) Streams() int { return int(a.streams.Load()) }

// Document is what it was told about a group.
func (a *Agent) Document(group string) (control.Document, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.groups[group]
	if p == nil || p.left {
		return control.Document{}, false
	}
	return p.document, true
}

// AwaitDocument returns what it was told about a group, as soon as it was.
func (a *Agent) AwaitDocument(ctx context.Context, group string) (control.Document, error) {
	for {
		a.mu.Lock()
		news := a.news
		a.mu.Unlock()
		if d, ok := a.Document(group); ok {
			return d, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return control.Document{}, fmt.Errorf("%s wasn't told about %s: %w", a.role.Pod, group, ctx.Err())
		}
	}
}

// Obey takes a decree, and reports it.
func (a *Agent) Obey(group string, d Decree) error {
	return a.alter(group, func(p *part) error {
		p.decree = d
		return nil
	})
}

var errNotIn = errors.New("it takes no part in this group")

func (a *Agent) alter(group string, by func(*part) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.groups[group]
	if p == nil || p.left {
		return errNotIn
	}
	if err := by(p); err != nil {
		return err
	}
	a.changed(p)
	return nil
}

// changed lets the streams know. The caller holds mu.
func (a *Agent) changed(p *part) {
	p.change++
	p.changed = time.Now()
	close(a.news)
	a.news = make(chan struct{})
}

// take takes a document, if it is newer than what there is.
func (a *Agent) take(d control.Document) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.groups[d.Group.Name]
	if p == nil {
		p = &part{}
		a.groups[d.Group.Name] = p
	}
	if d.Revision <= p.document.Revision {
		return
	}
	if d.UID != p.document.UID {
		p.decree = Decree{}
	}
	p.document, p.digest, p.left = d, digest(d.Group), false
	a.changed(p)
}

// digest is the same for the same lists.
func digest(g control.Group) string {
	type list struct {
		Version  uint32
		Members  []control.Member
		Previous *control.List
	}
	l := list{Version: g.Version, Previous: g.Previous}
	for _, m := range g.Members {
		l.Members = append(l.Members, control.Member{Name: m.Name, Priority: m.Priority})
	}
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(l) // Neither can fail.
	return strconv.FormatUint(h.Sum64(), 16)
}
