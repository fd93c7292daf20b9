package authority_test

import (
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/operator/authority"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

const day = 24 * time.Hour

var schedule = authority.Schedule{Before: 30 * day, Overlap: 2 * day, Known: day}

// root is an authority that is valid until then.
func root(name string, until time.Time) authority.Root {
	return authority.Root{Pair: identity.Pair{Cert: []byte(name + "\n"), Key: []byte("key")}, Until: until}
}

func TestWhatIsDue(t *testing.T) {
	now := time.Date(2027, 5, 1, 0, 0, 0, 0, time.UTC)
	in := func(d time.Duration) time.Time { return now.Add(d) }
	former := root("former", in(20*day))
	former.Key = nil
	for name, tc := range map[string]struct {
		state authority.State
		known time.Duration
		want  authority.Step
	}{
		"there is none":                      {want: authority.Make},
		"it has long to go":                  {state: authority.State{Signing: root("a", in(31*day))}, want: authority.Stay},
		"it has a month to go":               {state: authority.State{Signing: root("a", in(30*day))}, want: authority.Announce},
		"it has expired":                     {state: authority.State{Signing: root("a", in(0))}, want: authority.Make},
		"it expired, the next one is there":  {state: authority.State{Signing: root("a", in(0)), Next: root("b", in(9*day)), Since: now}, want: authority.Promote},
		"both have expired":                  {state: authority.State{Signing: root("a", in(-day)), Next: root("b", in(-1))}, want: authority.Make},
		"announced a moment ago":             {state: authority.State{Signing: root("a", in(20*day)), Next: root("b", in(90*day)), Since: now}, known: day, want: authority.Stay},
		"announced two days ago":             {state: authority.State{Signing: root("a", in(20*day)), Next: root("b", in(90*day)), Since: in(-2 * day)}, known: day, want: authority.Promote},
		"announced while I was away":         {state: authority.State{Signing: root("a", in(20*day)), Next: root("b", in(90*day)), Since: in(-9 * day)}, known: day - 1, want: authority.Stay},
		"announced by a clock that is ahead": {state: authority.State{Signing: root("a", in(20*day)), Next: root("b", in(90*day)), Since: in(time.Hour)}, known: day, want: authority.Stay},
		"promoted a moment ago":              {state: authority.State{Signing: root("b", in(90*day)), Former: former, Since: in(-day)}, want: authority.Stay},
		"promoted two days ago":              {state: authority.State{Signing: root("b", in(90*day)), Former: former, Since: in(-2 * day)}, want: authority.Retire},
		"promoted so late that it ends, too": {state: authority.State{Signing: root("b", in(9*day)), Former: former, Since: in(-day)}, want: authority.Stay},
	} {
		t.Run(name, func(t *testing.T) {
			if got := schedule.Due(tc.state, now, tc.known); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestOneAuthorityFollowsAnother(t *testing.T) {
	now := time.Date(2027, 5, 1, 0, 0, 0, 0, time.UTC)
	a, b := root("a", now.Add(day)), root("b", now.Add(365*day))
	var state authority.State
	for _, step := range []struct {
		step          authority.Step
		fresh         authority.Root
		signs, bundle string
	}{
		{authority.Make, a, "a\n", "a\n"},
		{authority.Stay, authority.Root{}, "a\n", "a\n"},
		{authority.Announce, b, "a\n", "a\nb\n"},
		{authority.Promote, authority.Root{}, "b\n", "b\na\n"},
		{authority.Retire, authority.Root{}, "b\n", "b\n"},
		{authority.Make, a, "a\n", "a\n"},
	} {
		state = state.After(step.step, now, step.fresh)
		if string(state.Signing.Cert) != step.signs || string(state.Bundle()) != step.bundle {
			t.Errorf("after %s, %q signs and %q are trusted", step.step, state.Signing.Cert, state.Bundle())
		}
		if len(state.Former.Key) > 0 {
			t.Errorf("after %s, the former one still has its key", step.step)
		}
	}
}
