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

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// In the years of these tests, two replicas with clocks of their own crash, lose
// the API server, and come back; a random one of those that run writes what
// ConfigMaps have. The clock of a replica doesn't set the time in certificates:
// those are off by an hour at most, or nothing works.

var errAway = errors.New("the API server is away")

// replica is a manager whose API server may fail it.
type replica struct {
	client client.Client
	skew   time.Duration
	keeper *Keeper // nil while it doesn't run

	away    bool
	crashes int  // at the how manieth write from now on, if above 0
	after   bool // the write still happens
	dead    bool
}

func (r *replica) fail(write bool) error {
	if r.away || r.dead {
		return errAway
	}
	if write && r.crashes > 0 {
		r.crashes--
		r.dead = r.crashes == 0
	}
	return nil
}

func (r *replica) write(do func() error) error {
	if err := r.fail(true); err != nil {
		return err
	}
	if r.dead && !r.after {
		return errAway
	}
	if err := do(); err != nil || !r.dead {
		return err
	}
	return errAway
}

// seeing is a replica's way to the API server.
func seeing(server client.WithWatch, r *replica) client.Client {
	return interceptor.NewClient(server, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := r.fail(false); err != nil {
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

// gift is what somebody was given at some time: a certificate, authorities, or both.
type gift struct {
	at     time.Time
	issuer string
	trusts map[string]bool
}

// world has the replicas, and all gifts of the last day.
type world struct {
	schedule Schedule
	random   *rand.Rand
	key      crypto.PublicKey
	replicas [2]*replica
	config   []byte // what ConfigMaps have
	gifts    []gift
	bundles  map[string]map[string]bool
	signers  map[string]bool
	signed   int
	refused  int // by a replica that hasn't seen the API server for long
}

func newWorld(s Schedule, seed uint64) *world {
	random := rand.New(rand.NewPCG(seed, 0))
	key, err := ecdsa.GenerateKey(elliptic.P256(), nil)
	if err != nil {
		panic(err)
	}
	w := &world{schedule: s, random: random, key: key.Public(), bundles: map[string]map[string]bool{}, signers: map[string]bool{}}
	server := fake.NewClientBuilder().Build()
	for i := range w.replicas {
		r := &replica{skew: time.Duration(random.Int64N(int64(6*time.Hour))) - 3*time.Hour}
		r.client = seeing(server, r)
		w.replicas[i] = r
	}
	return w
}

// pass lets some time go by, and then things happen.
func (w *world) pass(ctx context.Context) error {
	time.Sleep(time.Duration(1 + w.random.Int64N(int64(w.pace()))))
	for _, r := range w.replicas {
		w.trouble(r)
		w.live(ctx, r)
	}
	if len(w.config) > 0 {
		if err := w.give(nil, w.config); err != nil {
			return fmt.Errorf("in a ConfigMap: %w", err)
		}
	}
	for _, i := range w.random.Perm(len(w.replicas)) {
		r := w.replicas[i]
		if r.keeper == nil || w.random.IntN(4) == 0 {
			continue
		}
		cert, bundle, err := r.keeper.Sign(ctx, identity.Names{control.Operator}, w.key)
		if r.dead {
			continue
		}
		if err != nil {
			if !r.away {
				return err
			}
			w.refused++
			continue
		}
		w.signed++
		if err := w.give(cert, bundle); err != nil {
			return fmt.Errorf("replica %d: %w", i, err)
		}
		if !r.away {
			w.config = bundle
		}
	}
	return nil
}

// pace is slower while an authority follows another.
func (w *world) pace() time.Duration {
	for _, r := range w.replicas {
		if r.keeper == nil {
			continue
		}
		state := r.keeper.present().state
		if state.Next.exists() || state.Former.exists() || time.Until(state.Signing.Until) < w.schedule.Before+24*time.Hour {
			return time.Hour
		}
	}
	return 24 * time.Hour
}

// trouble begins and ends now and then.
func (w *world) trouble(r *replica) {
	switch chance := w.random.IntN(1000); {
	case r.away && chance < 40, r.dead && chance < 20:
		r.away, r.dead, r.crashes = false, false, 0
	case chance < 10:
		r.away = true
	case chance < 15:
		r.dead = true
	case chance < 40:
		r.crashes, r.after = 1, w.random.IntN(2) == 0
	}
}

// live is what a replica does all the time.
func (w *world) live(ctx context.Context, r *replica) {
	if r.keeper != nil && !r.dead {
		_ = r.keeper.Refresh(ctx)
	}
	if r.dead {
		r.keeper = nil
		return
	}
	if r.keeper == nil {
		clock := func() time.Time { return time.Now().Add(r.skew) }
		keeper, err := open(ctx, r.client, "conclave-system", slog.New(slog.DiscardHandler), w.schedule, clock)
		if err == nil && !r.dead {
			r.keeper = keeper
		}
	}
}

// give compares a gift with all of the last day.
func (w *world) give(cert, bundle []byte) error {
	now := time.Now()
	g := gift{at: now, trusts: w.trusted(bundle)}
	if cert != nil {
		block, _ := pem.Decode(cert)
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}
		g.issuer = string(leaf.AuthorityKeyId)
		w.signers[g.issuer] = true
	}
	for len(w.gifts) > 0 && now.Sub(w.gifts[0].at) > CertificateValid {
		w.gifts = w.gifts[1:]
	}
	w.gifts = append(w.gifts, g)
	for _, other := range w.gifts {
		if g.issuer != "" && !other.trusts[g.issuer] {
			return fmt.Errorf("a certificate isn't trusted by whoever got the authorities %s before", now.Sub(other.at))
		}
		if other.issuer != "" && !g.trusts[other.issuer] {
			return fmt.Errorf("the authorities don't cover a certificate that was given out %s before", now.Sub(other.at))
		}
	}
	return nil
}

func (w *world) trusted(bundle []byte) map[string]bool {
	if ids := w.bundles[string(bundle)]; ids != nil {
		return ids
	}
	ids := map[string]bool{}
	for rest := bundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			w.bundles[string(bundle)] = ids
			return ids
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			panic(err)
		}
		ids[string(cert.SubjectKeyId)] = true
	}
}

// years lets a world run, and says what went wrong in it first.
func years(t *testing.T, s Schedule, seed uint64, n int) (w *world, err error) {
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(s, seed)
		for end := time.Now().AddDate(n, 0, 0); time.Now().Before(end); {
			if err = w.pass(t.Context()); err != nil {
				err = fmt.Errorf("seed %d, %s: %w", seed, time.Now().Format(time.DateTime), err)
				return
			}
		}
	})
	return w, err
}

func TestAllTrustEachOtherForYears(t *testing.T) {
	for seed := range uint64(3) {
		w, err := years(t, usual, seed, 4)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("seed %d: %d certificates, %d authorities, %d refusals", seed, w.signed, len(w.signers), w.refused)
		if len(w.signers) < 4 || len(w.signers) > 5 {
			t.Errorf("%d authorities have signed in four years", len(w.signers))
		}
	}
}

// If this doesn't hold, the test above can't fail.
func TestHastyAuthoritiesAreNoticed(t *testing.T) {
	for name, hasty := range map[string]struct {
		Schedule
		seed uint64 // of the first world that shows it, to spare the time of others
	}{
		"overlap": {Schedule{Before: usual.Before, Overlap: 20 * time.Hour, Known: 0}, 0},
		"known":   {Schedule{Before: usual.Before, Overlap: usual.Overlap, Known: 0}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := hasty.seed; seed < hasty.seed+20; seed++ {
				if _, err := years(t, hasty.Schedule, seed, 4); err != nil {
					t.Log(err)
					return
				}
			}
			t.Error("nobody has noticed")
		})
	}
}
