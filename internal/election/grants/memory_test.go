package grants_test

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// TestMemoryHasEveryField: a field of the ledger is remembered, unless it is one of those
// that the new process has anyway, or may lose.
func TestMemoryHasEveryField(t *testing.T) {
	notRemembered := map[string]bool{"lease": true, "pending": true, "reserved": true, "extended": true, "extendsAt": true}
	ledger, memory := reflect.TypeFor[grants.Ledger](), reflect.TypeFor[grants.Memory]()
	for i := range ledger.NumField() {
		name := ledger.Field(i).Name
		field, has := memory.FieldByName(strings.ToUpper(name[:1]) + name[1:])
		expect.Equalf(t, has, !notRemembered[name], "%s: is remembered", name)
		if has && field.Type != ledger.Field(i).Type {
			t.Errorf("%s: got type %s, want %s", name, field.Type, ledger.Field(i).Type)
		}
	}
	expect.Equalf(t, memory.NumField(), ledger.NumField()-len(notRemembered), "fields")
	moments, shifted := 0, reflect.ValueOf(grants.Memory{}.Shifted(5))
	for i := range shifted.NumField() {
		if at, ok := reflect.TypeAssert[election.Tick](shifted.Field(i)); ok {
			expect.Equalf(t, at, 5, "%s on a clock that is ahead by 5", memory.Field(i).Name)
			moments++
		}
	}
	expect.Equalf(t, moments, 3, "moments")
}

// TestRestoredLedgerBehavesAlike gives the same random inputs to two members. One of them restarts again and again,
// with its memory. The other one only loses its deferred request at those moments.
func TestRestoredLedgerBehavesAlike(t *testing.T) {
	restarts, granted := 0, 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		one := grants.NewLedger(lease, 0)
		if r.IntN(2) == 0 {
			one = grants.NewLedgerWithoutMemory(lease, election.Tick(r.IntN(300)), election.Term(r.IntN(20)), 0, 0)
		}
		one.Reserve(election.MaxTerm)
		other, version, now := one, uint32(1), election.Tick(0)
		for range 60 {
			now += election.Tick(r.IntN(40))
			if r.IntN(4) == 0 {
				restarts++
				one.DropPending()
				other = grants.NewLedgerFrom(other.Memory(), lease)
				other.Reserve(election.MaxTerm)
			}
			input := r.Uint64()
			got := apply(&other, input, &version, now)
			if want := apply(&one, input, &version, now); got != want {
				t.Fatalf("seed %d at %d: got %d, want %d as without a restart", seed, now, got, want)
			} else if want == grants.Granted {
				granted++
			}
			if got, want := other.Encode(nil, now), one.Encode(nil, now); !bytes.Equal(got, want) {
				t.Fatalf("seed %d at %d: got %+v, want %+v as without a restart", seed, now, other, one)
			}
		}
	}
	if restarts < 10_000 || granted < 10_000 {
		t.Errorf("got %d restarts and %d grants, want 10,000 of each", restarts, granted)
	}
}

// noAnswer is what apply returns for inputs without an answer.
const noAnswer grants.Answer = 255

// apply applies an input that the random number determines.
func apply(l *grants.Ledger, random uint64, version *uint32, now election.Tick) grants.Answer {
	r := rand.New(rand.NewPCG(random, 2))
	h := grants.Holder{ID: election.ID(1 + r.IntN(3)), Life: uint32(1 + r.IntN(2))}
	term := l.HighestGranted() + election.Term(r.IntN(3))
	switch r.IntN(16) {
	case 0:
		l.Release(h, term, now)
	case 1:
		l.Abandon(h, term, now)
	case 2:
		l.ProcessEnded(h, now)
	case 3:
		*version = max(*version, l.Memory().Version+uint32(r.IntN(2)))
		l.Adopt(*version)
	case 4:
		l.Reserve(term)
	case 5:
		l.SetLease(lease)
	default:
		return l.Handle(grants.Request{
			Holder: h, Term: term, Held: r.IntN(2) == 0, Version: *version - uint32(r.IntN(2)), Sent: now,
			Lease: election.Tick(r.IntN(int(lease))),
		}, *version, now)
	}
	return noAnswer
}
