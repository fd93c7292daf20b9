package authority_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/conclave-dev/conclave/internal/operator/serve/authority"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

const day = 24 * time.Hour

var schedule = authority.Schedule{AnnounceBefore: 30 * day, Overlap: 2 * day, MinKnown: day}

// ca returns a CA that is valid until notAfter.
func ca(name string, notAfter time.Time) authority.CA {
	return authority.CA{Pair: identity.Pair{Cert: []byte(name + "\n"), Key: []byte("key")}, NotAfter: notAfter}
}

func TestDueStep(t *testing.T) {
	now := time.Date(2027, 5, 1, 0, 0, 0, 0, time.UTC)
	in := func(d time.Duration) time.Time { return now.Add(d) }
	former := ca("former", in(20*day))
	former.Key = nil
	signing := func(expires time.Duration) authority.State { return authority.State{Signing: ca("a", in(expires))} }
	announced := func(expires, next, since time.Duration) authority.State {
		return authority.State{Signing: ca("a", in(expires)), Next: ca("b", in(next)), Since: in(since)}
	}
	promoted := func(expires, since time.Duration) authority.State {
		return authority.State{Signing: ca("b", in(expires)), Former: former, Since: in(since)}
	}
	requested := func(s authority.State) authority.State {
		s.Requested = true
		return s
	}
	for name, tc := range map[string]struct {
		state authority.State
		known time.Duration
		want  authority.Step
	}{
		"no CA":                          {want: authority.Create},
		"expires in more than a month":   {state: signing(31 * day), want: authority.NoStep},
		"expires in a month":             {state: signing(30 * day), want: authority.Announce},
		"expired":                        {state: signing(0), want: authority.Create},
		"expired, with a next CA":        {state: announced(0, 9*day, 0), want: authority.Promote},
		"expired, and so is the next CA": {state: announced(-day, -1, 0), want: authority.Create},
		"announced just now":             {state: announced(20*day, 90*day, 0), known: day, want: authority.NoStep},
		"announced two days ago":         {state: announced(20*day, 90*day, -2*day), known: day, want: authority.Promote},
		"announced while this replica was disconnected": {
			state: announced(20*day, 90*day, -9*day), known: day - 1, want: authority.NoStep,
		},
		"announced by a replica whose clock is ahead": {
			state: announced(20*day, 90*day, time.Hour), known: day, want: authority.NoStep,
		},
		"promoted a day ago":    {state: promoted(90*day, -day), want: authority.NoStep},
		"promoted two days ago": {state: promoted(90*day, -2*day), want: authority.Retire},
		"requested":             {state: requested(signing(90 * day)), want: authority.Announce},
		"requested after the next CA was announced": {
			state: requested(announced(90*day, 91*day, -day)), known: day, want: authority.NoStep,
		},
		"requested after the next CA was promoted": {state: requested(promoted(90*day, -day)), want: authority.NoStep},
		"requested without a CA":                   {state: requested(authority.State{}), want: authority.Create},
		"promoted late, and expires soon itself":   {state: promoted(9*day, -day), want: authority.NoStep},
	} {
		t.Run(name, func(t *testing.T) {
			expect.Equal(t, schedule.Due(tc.state, now, tc.known), tc.want)
		})
	}
}

// A request is done when its rotation begins. One during a rotation remains for the next rotation.
func TestRequestIsDoneWhenItsRotationBegins(t *testing.T) {
	now := time.Date(2027, 5, 1, 0, 0, 0, 0, time.UTC)
	state := authority.State{Signing: ca("a", now.Add(90*day)), Requested: true}
	if state = state.After(authority.Announce, now, ca("b", now.Add(365*day))); state.Requested {
		t.Error("after announce, the rotation is still requested")
	}
	state.Requested = true
	for _, step := range []authority.Step{authority.Promote, authority.Retire} {
		if state = state.After(step, now, authority.CA{}); !state.Requested {
			t.Errorf("after %s, a request during the rotation is lost", step)
		}
	}
	if state = state.After(authority.Create, now, ca("c", now.Add(365*day))); state.Requested {
		t.Error("after create, a rotation is still requested")
	}
}

func TestStatesOfARotation(t *testing.T) {
	now := time.Date(2027, 5, 1, 0, 0, 0, 0, time.UTC)
	a, b := ca("a", now.Add(day)), ca("b", now.Add(365*day))
	var state authority.State
	for _, step := range []struct {
		step          authority.Step
		fresh         authority.CA
		signs, bundle string
	}{
		{authority.Create, a, "a\n", "a\n"},
		{authority.NoStep, authority.CA{}, "a\n", "a\n"},
		{authority.Announce, b, "a\n", "a\nb\n"},
		{authority.Promote, authority.CA{}, "b\n", "b\na\n"},
		{authority.Retire, authority.CA{}, "b\n", "b\n"},
		{authority.Create, a, "a\n", "a\n"},
	} {
		state = state.After(step.step, now, step.fresh)
		if string(state.Signing.Cert) != step.signs || string(state.Bundle()) != step.bundle {
			t.Errorf("after %s: got signing CA %q and bundle %q, want %q and %q", step.step, state.Signing.Cert,
				state.Bundle(), step.signs, step.bundle)
		}
		if len(state.Former.Key) > 0 {
			t.Errorf("after %s, the former CA still has its key", step.step)
		}
	}
}

func TestExpiryFollowsRenewals(t *testing.T) {
	ca, expiry := time.Unix(1900000000, 0), &authority.Expiry{}
	expiry.Add("ca", func() time.Time { return ca })
	expiry.Add("webhook", func() time.Time { return time.Time{} })
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(expiry)
	for range 2 {
		families, err := registry.Gather()
		if err != nil || len(families) != 1 ||
			families[0].GetName() != "conclave_operator_certificate_expiry_timestamp_seconds" {
			t.Fatalf("got %v and error %v, want one metric", families, err)
		}
		got := map[string]float64{}
		for _, series := range families[0].GetMetric() {
			got[series.GetLabel()[0].GetValue()] = series.GetGauge().GetValue()
		}
		if got["ca"] != float64(ca.Unix()) || got["webhook"] != 0 || len(got) != 2 {
			t.Errorf("got %v, want %d for ca, and 0 for webhook, which can't be read", got, ca.Unix())
		}
		ca = ca.Add(time.Hour)
	}
}
