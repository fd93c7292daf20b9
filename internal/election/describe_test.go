package election_test

import (
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// Logs and transcripts use the same descriptions.
func TestDescriptions(t *testing.T) {
	roster := mustRoster(t, 3, []election.Member{{1, 1}})
	ring := election.Message{
		Kind: election.ElectMe, From: 3, To: 4, Term: 2, Subject: 1, Origin: 1, Hops: 2, List: []election.ID{1, 3},
	}
	beat := election.Message{
		Kind: election.Beat, From: 3, To: 4, Term: 2, Subject: 3, Hold: election.Hold{Held: true, Ready: true},
	}
	for want, got := range map[string]string{
		"4 -> 9 ELECTION term 2 about 10": election.Message{
			Kind: election.Election, From: 4, To: 9, Term: 2, Subject: 10,
		}.Describe(),
		"3 -> 4 ELECT_ME term 2 about 1 from 1, hop 2 [1 3]": ring.Describe(),
		"3 -> 4 BEAT term 2 held ready":                      beat.Describe(),
		"0 -> 0 UNKNOWN term 0":                              election.Message{Kind: 200}.Describe(),
		"elected 9, term 2":                                  election.Event{Kind: election.Elected, Peer: 9, Term: 2}.Describe(),
		"started, term 2":                                    election.Event{Kind: election.Started, Term: 2}.Describe(),
		"tenure 9, term 2, token 32777":                      election.Event{Kind: election.TenureStarted, Peer: 9, Term: 2, Token: election.TokenOf(2, 9)}.Describe(),
		"unknown, term 0":                                    election.Event{Kind: 99}.Describe(),
		"tick":                                               election.Input{Kind: election.TimePassed}.Describe(),
		"suspect 4":                                          election.Input{Kind: election.Suspect, Peer: 4}.Describe(),
		"receive 3 -> 4 BEAT term 2 held ready":              election.Input{Kind: election.Receive, Message: beat}.Describe(),
		"undelivered 3 -> 4 BEAT term 2 held ready":          election.Input{Kind: election.Undelivered, Message: beat}.Describe(),
		"adopt nothing":                                      election.Input{Kind: election.Adopt}.Describe(),
		"adopt version 3":                                    election.Input{Kind: election.Adopt, Roster: roster}.Describe(),
		"unknown 4":                                          election.Input{Kind: 99, Peer: 4}.Describe(),
		"Unknown":                                            election.Unknown.String(),
		"Crashed":                                            election.Crashed.String(),
	} {
		expect.Equal(t, got, want)
	}
}

// The counting rule: the messages of the office never count, all others do.
func TestCountedKinds(t *testing.T) {
	office := []election.Kind{election.NoKind, election.Beat, election.Grant, election.Deny, election.Resigned, election.Probe}
	for kind := election.NoKind; kind <= election.Probe; kind++ {
		want := !slices.Contains(office, kind)
		if kind.Counts() != want || slices.Contains(election.Kinds(), kind) != want {
			t.Errorf("%s: got Counts %v and in Kinds %v, want %v",
				kind, kind.Counts(), slices.Contains(election.Kinds(), kind), want)
		}
	}
	if election.Kind(200).Counts() {
		t.Error("unknown kind: got Counts true, want false")
	}
}
