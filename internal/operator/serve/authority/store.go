package authority

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

const (
	// refreshInterval is the average time between two reads of the Secret. The manager polls because it has no permission
	// to watch Secrets. A longer interval suffices, because no replica has to learn of a rotation step sooner.
	refreshInterval = CertificateValidity / 24
	// maxViewAge is the maximum age of a view that a replica may use. It must be much longer than refreshInterval, and
	// much shorter than Overlap minus CertificateValidity.
	maxViewAge = CertificateValidity / 2
	// requestTimeout limits one refresh, and one update of the webhook configuration. maxAttempts limits how often a
	// refresh retries after a conflict.
	requestTimeout = 10 * time.Second
	maxAttempts    = 10
)

// Store keeps the CAs in one Secret, rotates them, and signs certificates. Each replica of the manager has one. Any
// replica may execute a rotation step that is due; the Secret's resource version ensures that only one of them does.
type Store struct {
	client   client.Client
	name     client.ObjectKey
	schedule Schedule
	clock    func() time.Time
	log      *slog.Logger
	// mayCreate returns an error if a new CA would replace one that is in use.
	mayCreate func(context.Context) error

	refreshMu sync.Mutex // serializes requests to the API server

	mu           sync.Mutex
	view         view
	changed      chan struct{}
	certificates []renewable
}

// view is what a replica has read from the Secret.
type view struct {
	state  State
	signer *identity.CA
	read   time.Time
	// announced is when this replica first read the state's Next.
	announced time.Time
}

// renewable is a certificate that the Store renews.
type renewable interface {
	renew(view, time.Time) error
}

// Open reads the Secret, or creates it unless mayCreate returns an error. If the Secret exists and is empty, Open
// creates a CA without that call: a user wants a new one. The client must read from the API server, not from a cache.
// The Store never reads, lists or watches any other Secret.
func Open(ctx context.Context, c client.Client, namespace string, log *slog.Logger,
	mayCreate func(context.Context) error,
) (*Store, error) {
	return open(ctx, c, namespace, log, defaultSchedule, time.Now, mayCreate)
}

// Anyway allows Open to create a CA.
func Anyway(context.Context) error { return nil }

func open(ctx context.Context, c client.Client, namespace string, log *slog.Logger,
	schedule Schedule, clock func() time.Time, mayCreate func(context.Context) error,
) (*Store, error) {
	s := &Store{
		client: c, name: client.ObjectKey{Namespace: namespace, Name: SecretName},
		schedule: schedule, clock: clock, log: log, changed: make(chan struct{}), mayCreate: mayCreate,
	}
	if err := s.Refresh(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// NeedLeaderElection returns false: each replica reads the Secret itself.
func (*Store) NeedLeaderElection() bool { return false }

// Start refreshes the Store periodically until the context ends.
func (s *Store) Start(ctx context.Context) error {
	for {
		wait := refreshInterval/2 + rand.N(refreshInterval)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if err := s.Refresh(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot refresh CA Secret; retrying later", "error", err)
		}
	}
}

// Refresh reads the Secret, executes the rotation step that is due, and renews certificates.
func (s *Store) Refresh(ctx context.Context) error {
	s.refreshMu.Lock()
	defer s.refreshMu.Unlock()
	err := s.advance(ctx)
	s.renewCertificates()
	return err
}

// renewCertificates renews the certificates that are due, even if the Secret cannot be read at the moment.
func (s *Store) renewCertificates() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	if s.view.signer == nil || now.Sub(s.view.read) > maxViewAge {
		return
	}
	for _, c := range s.certificates {
		if err := c.renew(s.view, now); err != nil {
			s.log.Error("cannot renew certificate", "error", err)
		}
	}
}

// advance reads the Secret and executes the rotation steps that are due. If
// another replica writes the Secret in between, advance starts again.
func (s *Store) advance(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var err error
	for range maxAttempts {
		var written bool
		written, err = s.advanceOnce(ctx)
		conflict := apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
		switch {
		case err == nil && !written:
			return nil
		case err != nil && !conflict:
			return fmt.Errorf("cannot update CA Secret %s: %w", s.name, err)
		}
	}
	return fmt.Errorf("cannot update CA Secret %s: too many conflicting writes: %w", s.name, err)
}

// advanceOnce reads the Secret and executes at most one rotation step. It reports whether it wrote the Secret.
func (s *Store) advanceOnce(ctx context.Context) (bool, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, Name: s.name.Name}}
	// The time before the request is a lower bound for the age of the result.
	now := s.clock()
	err := s.client.Get(ctx, s.name, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return false, err
	}
	state, err := decodeState(secret)
	if missing {
		// If somebody deletes the Secret while a manager runs, restore its content.
		state = s.currentView().state
	}
	if err != nil {
		return false, err
	}
	if problem := requestProblem(secret); problem != "" {
		s.log.Warn("cannot rotate the CA: " + problem)
	}
	due := s.schedule.Due(state, now, s.nextKnownFor(state, now))
	if due == NoStep && !missing {
		return false, s.setView(state, now)
	}
	if missing && due == Create {
		if err := s.mayCreate(ctx); err != nil {
			return false, err
		}
	}
	var created CA
	if due == Create || due == Announce {
		if created, err = newCA(); err != nil {
			return false, err
		}
	}
	state = state.After(due, now, created)
	encodeState(state, secret)
	if missing {
		err = s.client.Create(ctx, secret)
	} else {
		err = s.client.Update(ctx, secret)
	}
	if err != nil {
		return false, err
	}
	s.log.Info("wrote CA Secret", "step", string(due), "notAfter", state.Signing.NotAfter)
	return true, nil
}

func (s *Store) currentView() view {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view
}

// nextKnownFor returns how long this replica has known the state's next CA.
func (s *Store) nextKnownFor(state State, now time.Time) time.Duration {
	v := s.currentView()
	if !state.Next.exists() || string(v.state.Next.Cert) != string(state.Next.Cert) {
		return 0
	}
	return now.Sub(v.announced)
}

// setView replaces the view by a state that was read at a time.
func (s *Store) setView(state State, read time.Time) error {
	signer, err := identity.ParseCA(state.Signing.Pair)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := view{state: state, signer: signer, read: read, announced: read}
	if string(s.view.state.Next.Cert) == string(state.Next.Cert) {
		next.announced = s.view.announced
	}
	if string(s.view.state.Bundle()) != string(state.Bundle()) {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.view = next
	return nil
}

// NotAfter returns the expiry of the signing CA, as last read.
func (s *Store) NotAfter() time.Time { return s.currentView().state.Signing.NotAfter }

// Changed returns a channel that is closed when the CA bundle changes. Call it
// before Bundle, so that no change is missed.
func (s *Store) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// usableView returns a view that is recent and for which no rotation step is due. It refreshes the Store if necessary.
func (s *Store) usableView(ctx context.Context) (view, error) {
	v, now := s.currentView(), s.clock()
	age := now.Sub(v.read)
	if age >= 0 && age <= 2*refreshInterval && s.schedule.Due(v.state, now, s.nextKnownFor(v.state, now)) == NoStep {
		return v, nil
	}
	err := s.Refresh(ctx)
	v, now = s.currentView(), s.clock()
	switch age := now.Sub(v.read); {
	case age > maxViewAge || age < -maxViewAge:
		return view{}, errors.Join(fmt.Errorf("the CA Secret was last read %s ago", age.Round(time.Minute)), err)
	case !v.state.Signing.canSign(now):
		return view{}, errors.Join(errors.New("the signing CA has expired"), err)
	}
	return v, nil
}

// Bundle returns the CA bundle: the certificates of all trusted CAs, in PEM.
func (s *Store) Bundle(ctx context.Context) ([]byte, error) {
	v, err := s.usableView(ctx)
	if err != nil {
		return nil, err
	}
	return v.state.Bundle(), nil
}

// Sign issues a certificate for the public key of an agent in the pod with a UID. It returns the certificate and the
// CA bundle, both in PEM.
func (s *Store) Sign(ctx context.Context, names identity.Names, uid string,
	key crypto.PublicKey,
) (cert, bundle []byte, err error) {
	v, err := s.usableView(ctx)
	if err != nil {
		return nil, nil, err
	}
	cert, err = v.signer.Sign(names, uid, key, CertificateValidity)
	if err != nil {
		return nil, nil, err
	}
	return cert, v.state.Bundle(), nil
}
