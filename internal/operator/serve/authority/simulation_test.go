package authority

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// These tests simulate several years of rotations in virtual time. Two replicas with skewed clocks crash, lose their
// connection to the API server, and recover. A random replica writes the CA bundle into the webhook configuration. The
// skew of a replica's clock doesn't affect the validity periods in certificates: in practice, clocks that differ by
// more than an hour break certificates anyway.

var errUnreachable = errors.New("the API server is unreachable")

// replica is a manager that may lose its connection to the API server, or crash.
type replica struct {
	client client.Client
	skew   time.Duration
	store  *Store // nil while the replica doesn't run

	disconnected bool
	// crashIn is the number of writes until the replica crashes, 0 for never. If
	// crashAfterWrite is set, the API server still executes the last write.
	crashIn         int
	crashAfterWrite bool
	crashed         bool
}

func (r *replica) request(isWrite bool) error {
	if r.disconnected || r.crashed {
		return errUnreachable
	}
	if isWrite && r.crashIn > 0 {
		r.crashIn--
		r.crashed = r.crashIn == 0
	}
	return nil
}

func (r *replica) write(do func() error) error {
	if err := r.request(true); err != nil {
		return err
	}
	if r.crashed && !r.crashAfterWrite {
		return errUnreachable
	}
	if err := do(); err != nil || !r.crashed {
		return err
	}
	return errUnreachable
}

// newClient returns a replica's client of the API server.
func newClient(server client.WithWatch, r *replica) client.Client {
	return interceptor.NewClient(server, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption,
		) error {
			if err := r.request(false); err != nil {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return r.write(func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return r.write(func() error { return c.Update(ctx, o, opts...) })
		},
	})
}

// credentials are what one party obtained at a time: a certificate, a CA bundle, or both.
type credentials struct {
	at     time.Time
	issuer string // empty without a certificate
	trusts map[string]bool
}

// simulation has the replicas, and all credentials that were issued within the last day.
type simulation struct {
	schedule Schedule
	random   *rand.Rand
	server   client.Client
	// requests is whether users request rotations now and then.
	requests bool
	key      crypto.PublicKey
	replicas [2]*replica
	webhook  []byte // the CA bundle in the webhook configuration
	recent   []credentials
	bundles  map[string]map[string]bool
	signers  map[string]bool
	signed   int
	refused  int // by replicas that were disconnected for too long
}

func newSimulation(schedule Schedule, seed uint64) *simulation {
	random := rand.New(rand.NewPCG(seed, 0))
	key, err := ecdsa.GenerateKey(elliptic.P256(), nil)
	if err != nil {
		panic(err)
	}
	s := &simulation{
		schedule: schedule, random: random, key: key.Public(), bundles: map[string]map[string]bool{},
		signers: map[string]bool{},
	}
	server := fake.NewClientBuilder().Build()
	s.server = server
	for i := range s.replicas {
		r := &replica{skew: time.Duration(random.Int64N(int64(6*time.Hour))) - 3*time.Hour}
		r.client = newClient(server, r)
		s.replicas[i] = r
	}
	return s
}

// step advances the time, injects faults, and issues credentials.
func (s *simulation) step(ctx context.Context) error {
	time.Sleep(time.Duration(1 + s.random.Int64N(int64(s.maxPause()))))
	for _, r := range s.replicas {
		s.injectFault(r)
		s.run(ctx, r)
	}
	if s.requests && s.random.IntN(30) == 0 {
		if err := s.request(ctx); err != nil {
			return err
		}
	}
	if len(s.webhook) > 0 {
		if err := s.check(nil, s.webhook); err != nil {
			return fmt.Errorf("webhook configuration: %w", err)
		}
	}
	for _, i := range s.random.Perm(len(s.replicas)) {
		r := s.replicas[i]
		if r.store == nil || s.random.IntN(4) == 0 {
			continue
		}
		cert, bundle, err := r.store.Sign(ctx, identity.Names{control.Operator}, "", s.key)
		if r.crashed {
			continue
		}
		if err != nil {
			if !r.disconnected {
				return err
			}
			s.refused++
			continue
		}
		s.signed++
		if err := s.check(cert, bundle); err != nil {
			return fmt.Errorf("replica %d: %w", i, err)
		}
		if !r.disconnected {
			s.webhook = bundle
		}
	}
	return nil
}

// request requests a rotation, if the Secret exists.
func (s *simulation) request(ctx context.Context) error {
	var secret corev1.Secret
	err := s.server.Get(ctx, client.ObjectKey{Namespace: namespace, Name: SecretName}, &secret)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, RotateAnnotation, RotateNow)
	return s.server.Update(ctx, &secret)
}

// maxPause is shorter during a rotation, and while no replica runs.
func (s *simulation) maxPause() time.Duration {
	pause := time.Hour // while no replica runs
	for _, r := range s.replicas {
		if r.store == nil {
			continue
		}
		pause = 24 * time.Hour
		state := r.store.currentView().state
		if state.Next.exists() || state.Former.exists() ||
			time.Until(state.Signing.NotAfter) < s.schedule.AnnounceBefore+24*time.Hour {
			return time.Hour
		}
	}
	return pause
}

// injectFault starts or ends a fault with a low probability.
func (s *simulation) injectFault(r *replica) {
	switch chance := s.random.IntN(1000); {
	case r.disconnected && chance < 40, r.crashed && chance < 20:
		r.disconnected, r.crashed, r.crashIn = false, false, 0
	case chance < 10:
		r.disconnected = true
	case chance < 15:
		r.crashed = true
	case chance < 40:
		r.crashIn, r.crashAfterWrite = 1, s.random.IntN(2) == 0
	}
}

// run refreshes the store of a replica, and restarts the replica after a crash.
func (s *simulation) run(ctx context.Context, r *replica) {
	if r.store != nil && !r.crashed {
		_ = r.store.Refresh(ctx)
	}
	if r.crashed {
		r.store = nil
		return
	}
	if r.store == nil {
		clock := func() time.Time { return time.Now().Add(r.skew) }
		store, err := open(ctx, r.client, "conclave-system", slog.New(slog.DiscardHandler), s.schedule, clock, Anyway)
		if err == nil && !r.crashed {
			r.store = store
		}
	}
}

// check compares new credentials with all credentials of the last day: each certificate must be trusted by each bundle.
func (s *simulation) check(cert, bundle []byte) error {
	now := time.Now()
	c := credentials{at: now, trusts: s.idsOf(bundle)}
	if cert != nil {
		block, _ := pem.Decode(cert)
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}
		c.issuer = string(leaf.AuthorityKeyId)
		s.signers[c.issuer] = true
	}
	for len(s.recent) > 0 && now.Sub(s.recent[0].at) > CertificateValidity {
		s.recent = s.recent[1:]
	}
	s.recent = append(s.recent, c)
	for _, other := range s.recent {
		if c.issuer != "" && !other.trusts[c.issuer] {
			return fmt.Errorf("a new certificate isn't trusted by a CA bundle that was issued %s earlier", now.Sub(other.at))
		}
		if other.issuer != "" && !c.trusts[other.issuer] {
			return fmt.Errorf("a new CA bundle doesn't trust a certificate that was issued %s earlier", now.Sub(other.at))
		}
	}
	return nil
}

// idsOf returns the key IDs of the CAs in a bundle.
func (s *simulation) idsOf(bundle []byte) map[string]bool {
	if ids := s.bundles[string(bundle)]; ids != nil {
		return ids
	}
	ids := map[string]bool{}
	for rest := bundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			s.bundles[string(bundle)] = ids
			return ids
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			panic(err)
		}
		ids[string(cert.SubjectKeyId)] = true
	}
}

// simulate runs a simulation of several years, and returns its first violation.
func simulate(t *testing.T, schedule Schedule, seed uint64, years int, requests bool) (s *simulation, err error) {
	synctest.Test(t, func(t *testing.T) {
		s = newSimulation(schedule, seed)
		s.requests = requests
		for end := time.Now().AddDate(years, 0, 0); time.Now().Before(end); {
			if err = s.step(t.Context()); err != nil {
				err = fmt.Errorf("seed %d, %s: %w", seed, time.Now().Format(time.DateTime), err)
				return
			}
		}
	})
	return s, err
}

func TestCertificatesAreTrustedDuringRotations(t *testing.T) {
	for seed := range uint64(3) {
		s, err := simulate(t, defaultSchedule, seed, 4, false)
		must.Succeed(t, err)
		t.Logf("seed %d: %d certificates, %d CAs, %d refusals", seed, s.signed, len(s.signers), s.refused)
		if len(s.signers) < 4 || len(s.signers) > 5 {
			t.Errorf("got certificates of %d CAs in four years, want 4 or 5", len(s.signers))
		}
	}
}

func TestCertificatesAreTrustedDuringRequestedRotations(t *testing.T) {
	s, err := simulate(t, defaultSchedule, 0, 1, true)
	must.Succeed(t, err)
	t.Logf("%d certificates, %d CAs, %d refusals", s.signed, len(s.signers), s.refused)
	expect.AtLeastf(t, len(s.signers), 10, "certificates of CAs")
}

// An agent that couldn't enroll for two weeks trusts the identity service still. Both steps fit into the
// time before the signing CA expires.
func TestOverlapIsTwoWeeks(t *testing.T) {
	s := defaultSchedule
	if s.Overlap < 14*24*time.Hour || s.AnnounceBefore < 2*s.Overlap {
		t.Errorf(
			"got an overlap of %s and an announcement %s before, want two weeks, and both overlaps before the CA expires",
			s.Overlap, s.AnnounceBefore)
	}
}

// TestTooFastRotationIsDetected checks that the simulation finds violations at all.
func TestTooFastRotationIsDetected(t *testing.T) {
	for name, fast := range map[string]struct {
		Schedule
		seed uint64 // the first one with a violation, to save time
	}{
		"Overlap": {Schedule{AnnounceBefore: defaultSchedule.AnnounceBefore, Overlap: 20 * time.Hour, MinKnown: 0}, 0},
		"MinKnown": {
			Schedule{AnnounceBefore: defaultSchedule.AnnounceBefore, Overlap: 2 * CertificateValidity, MinKnown: 0}, 15,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := fast.seed; seed < fast.seed+20; seed++ {
				if _, err := simulate(t, fast.Schedule, seed, 4, false); err != nil {
					t.Log(err)
					return
				}
			}
			t.Error("the simulation found no violation")
		})
	}
}
