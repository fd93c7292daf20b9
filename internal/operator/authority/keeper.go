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
	// readAgain is how often the Secret is read, roughly: nobody may watch Secrets,
	// and no step of another replica need be known sooner.
	readAgain = time.Hour
	// fresh enough is what was read since then; it must be much longer than
	// readAgain, and end well before an Overlap less CertificateValid has passed.
	oldest = 12 * time.Hour
	// patience is how long one look at the Secret may take, and maxTurns how often
	// it is read for that.
	patience = 10 * time.Second
	maxTurns = 10
)

// Keeper keeps the authorities in one Secret. Each replica of the manager has
// one: whoever finds a step due takes it, and of several one does.
type Keeper struct {
	client   client.Client
	name     client.ObjectKey
	schedule Schedule
	clock    func() time.Time
	log      *slog.Logger

	turn sync.Mutex // one at a time asks the API server

	mu      sync.Mutex
	view    view
	changed chan struct{}
	holders []holder
}

// view is what a replica has read, and when.
type view struct {
	state   State
	version string
	signer  *identity.CA
	read    time.Time
	// announced is when this replica first knew of the state's Next.
	announced time.Time
}

// holder has a certificate that must be renewed.
type holder interface {
	renew(view, time.Time) error
}

// Open reads the Secret, or makes it. The client must read from the API server
// itself: no other Secret is ever asked for, listed or watched.
func Open(ctx context.Context, c client.Client, namespace string, log *slog.Logger) (*Keeper, error) {
	return open(ctx, c, namespace, log, usual, time.Now)
}

func open(ctx context.Context, c client.Client, namespace string, log *slog.Logger, s Schedule, clock func() time.Time) (*Keeper, error) {
	k := &Keeper{
		client: c, name: client.ObjectKey{Namespace: namespace, Name: SecretName},
		schedule: s, clock: clock, log: log, changed: make(chan struct{}),
	}
	if err := k.Refresh(ctx); err != nil {
		return nil, err
	}
	return k, nil
}

// NeedLeaderElection is false: each replica keeps up by itself.
func (*Keeper) NeedLeaderElection() bool { return false }

// Start keeps up with the Secret, takes the steps that are due, and renews
// certificates, until the context ends.
func (k *Keeper) Start(ctx context.Context) error {
	for {
		wait := readAgain/2 + rand.N(readAgain)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if err := k.Refresh(ctx); err != nil && ctx.Err() == nil {
			k.log.Warn("the authority's Secret can't be read", "error", err)
		}
	}
}

// Refresh reads the Secret now, takes the step that is due, and renews what
// must be.
func (k *Keeper) Refresh(ctx context.Context) error {
	k.turn.Lock()
	defer k.turn.Unlock()
	err := k.look(ctx)
	k.renew()
	return err
}

// renew has those certificates renewed whose time has come, also while the
// Secret can't be read.
func (k *Keeper) renew() {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock()
	if k.view.signer == nil || now.Sub(k.view.read) > oldest {
		return
	}
	for _, h := range k.holders {
		if err := h.renew(k.view, now); err != nil {
			k.log.Error("a certificate can't be renewed", "error", err)
		}
	}
}

// look reads the Secret and takes what steps are due. If another replica writes
// in between, it looks again.
func (k *Keeper) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var err error
	for range maxTurns {
		var written bool
		written, err = k.step(ctx)
		overtaken := apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
		switch {
		case err == nil && !written:
			return nil
		case err != nil && !overtaken:
			return fmt.Errorf("keep the authority in Secret %s: %w", k.name, err)
		}
	}
	return fmt.Errorf("keep the authority in Secret %s: others write it all the time: %w", k.name, err)
}

// step reads the Secret and takes one step, if one is due. It reports whether it
// has written.
func (k *Keeper) step(ctx context.Context) (bool, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.name.Namespace, Name: k.name.Name}}
	// What is read is at least as new as this.
	now := k.clock()
	err := k.client.Get(ctx, k.name, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return false, err
	}
	state, err := read(secret)
	if missing {
		// Whoever deletes the Secret under a running manager hasn't meant to.
		state = k.present().state
	}
	if err != nil {
		return false, err
	}
	due := k.schedule.Due(state, now, k.known(state, now))
	if due == Stay && !missing {
		return false, k.show(state, secret.ResourceVersion, now)
	}
	var made Root
	if due == Make || due == Announce {
		if made, err = fresh(); err != nil {
			return false, err
		}
	}
	state = state.After(due, now, made)
	write(state, secret)
	if missing {
		err = k.client.Create(ctx, secret)
	} else {
		err = k.client.Update(ctx, secret)
	}
	if err != nil {
		return false, err
	}
	k.log.Info("the authority's Secret has been written", "step", string(due), "until", state.Signing.Until)
	return true, nil
}

func (k *Keeper) present() view {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.view
}

// known is how long this replica has known the state's Next.
func (k *Keeper) known(state State, now time.Time) time.Duration {
	v := k.present()
	if !state.Next.exists() || string(v.state.Next.Cert) != string(state.Next.Cert) {
		return 0
	}
	return now.Sub(v.announced)
}

// show makes what was read what counts.
func (k *Keeper) show(state State, version string, now time.Time) error {
	signer, err := identity.ParseCA(state.Signing.Pair)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	next := view{state: state, version: version, signer: signer, read: now, announced: now}
	if string(k.view.state.Next.Cert) == string(state.Next.Cert) {
		next.announced = k.view.announced
	}
	if string(k.view.state.Bundle()) != string(state.Bundle()) {
		close(k.changed)
		k.changed = make(chan struct{})
	}
	k.view = next
	return nil
}

// Changed is closed when Bundle has become another. Ask for it before Bundle.
func (k *Keeper) Changed() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changed
}

// trusted is a view that may be gone by: one that isn't old, and with which no
// step is due.
func (k *Keeper) trusted(ctx context.Context) (view, error) {
	v, now := k.present(), k.clock()
	age := now.Sub(v.read)
	if age >= 0 && age <= 2*readAgain && k.schedule.Due(v.state, now, k.known(v.state, now)) == Stay {
		return v, nil
	}
	err := k.Refresh(ctx)
	v, now = k.present(), k.clock()
	switch age := now.Sub(v.read); {
	case age > oldest || age < -oldest:
		return view{}, errors.Join(fmt.Errorf("the authority hasn't been read for %s", age.Round(time.Minute)), err)
	case !v.state.Signing.signs(now):
		return view{}, errors.Join(errors.New("the authority has expired"), err)
	}
	return v, nil
}

// Bundle are the certificates of all authorities that are to be trusted, in PEM.
func (k *Keeper) Bundle(ctx context.Context) ([]byte, error) {
	v, err := k.trusted(ctx)
	if err != nil {
		return nil, err
	}
	return v.state.Bundle(), nil
}

// Sign makes a certificate for the holder of a key, and returns it with the
// authorities to be trusted, both in PEM.
func (k *Keeper) Sign(ctx context.Context, names identity.Names, key crypto.PublicKey) (cert, bundle []byte, err error) {
	v, err := k.trusted(ctx)
	if err != nil {
		return nil, nil, err
	}
	cert, err = v.signer.Sign(names, key, CertificateValid)
	if err != nil {
		return nil, nil, err
	}
	return cert, v.state.Bundle(), nil
}
