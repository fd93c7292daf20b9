// Package authority is the operator's certificate authority (CA). It signs the
// certificates of agents, of the operator, and of the manager's servers.
//
// A CA certificate is valid for a year. Before it expires, or when a user requests it, a
// new CA replaces it in three steps, each of which is one write to one Secret:
//
//	            announce              promote               retire
//	trusted   A    |      A and B        |      B and A        |    B
//	signs     A    |      A              |      B              |    B
//	               |<---- 14 days ------>|<---- 14 days ------>|
//
// No issued certificate is valid for more than 24 h, and no replica of the manager uses a copy of the Secret that is
// more than 12 h old. Two parties that both obtained their certificate and CA bundle within the last 24 h therefore
// trust each other, even if their clocks differ by hours and wherever a replica crashes.
//
// For that, two days would be enough. But an agent learns of a CA only when it enrolls. If its last enrollment was
// before B was announced, it no longer trusts the identity service once B signs, so it never enrolls again, and its pod
// has to be replaced. With 14 days, this happens only to an agent that can't reach the identity service for 14 days.
//
// A replica promotes a CA only after it has known that CA itself for 24 h. It may have been disconnected, and the
// bundles that it wrote last, in the webhook configuration and the Secret of Prometheus, contain A only.
//
// These guarantees hold if at least one replica runs for a day within the last two months
// of a CA. If the signing CA has expired, the next one signs at once.
package authority

import (
	"bytes"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// +kubebuilder:rbac:groups="",namespace=conclave-system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=conclave-system,resources=secrets,resourceNames=conclave-ca;conclave-metrics,verbs=get;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=conclave,verbs=get;list;watch;patch

const (
	// CAValidity is how long a CA certificate is valid.
	CAValidity = 365 * 24 * time.Hour
	// RotateAnnotation requests a rotation if it is on the Secret with the value RotateNow.
	// The step that begins the rotation removes it.
	RotateAnnotation = "conclave.dev/rotate-ca"
	// RotateNow is the only value of RotateAnnotation.
	RotateNow = "now"
)

// Schedule defines when a new CA replaces the signing CA.
type Schedule struct {
	// AnnounceBefore is how long before the signing CA expires the next one is announced.
	AnnounceBefore time.Duration
	// Overlap is how long both CAs are trusted before the next one is promoted,
	// and again before the former one is retired.
	Overlap time.Duration
	// MinKnown is how long a replica must have known an announced CA before it promotes it.
	MinKnown time.Duration
}

// defaultSchedule is the schedule of the manager.
var defaultSchedule = Schedule{AnnounceBefore: 60 * 24 * time.Hour, Overlap: overlap, MinKnown: CertificateValidity}

// CA is a CA certificate with its private key. A former CA has no key.
type CA struct {
	identity.Pair
	NotAfter time.Time
}

func (c CA) exists() bool { return len(c.Cert) > 0 }

func (c CA) canSign(now time.Time) bool { return len(c.Key) > 0 && now.Before(c.NotAfter) }

// State is the content of the CA Secret.
type State struct {
	// Signing signs certificates. It doesn't exist in a new State.
	Signing CA
	// Next is trusted, but doesn't sign yet.
	Next CA
	// Former is still trusted, but no longer signs.
	Former CA
	// Since is the time of the last rotation step.
	Since time.Time
	// Requested is whether a user requests a rotation. During a rotation, it requests
	// another one: the keys of both CAs may have been disclosed.
	Requested bool
}

// Step is a step of the rotation.
type Step string

// The steps. NoStep means that nothing is due.
const (
	NoStep   Step = ""
	Create   Step = "create"
	Announce Step = "announce"
	Promote  Step = "promote"
	Retire   Step = "retire"
)

// Due returns the step that is due now. nextKnown is how long the calling replica has known the State's next CA.
func (s Schedule) Due(state State, now time.Time, nextKnown time.Duration) Step {
	overlapOver := now.Sub(state.Since) >= s.Overlap
	switch {
	case !state.Signing.canSign(now) && state.Next.canSign(now):
		return Promote // The signing CA has expired, so there is no overlap to wait for.
	case !state.Signing.canSign(now):
		return Create
	case state.Former.exists():
		if overlapOver {
			return Retire
		}
	case state.Next.exists():
		if overlapOver && nextKnown >= s.MinKnown {
			return Promote
		}
	case state.Requested, state.Signing.NotAfter.Sub(now) <= s.AnnounceBefore:
		return Announce
	}
	return NoStep
}

// After returns the State after a step. Create and Announce use the CA created.
func (s State) After(step Step, now time.Time, created CA) State {
	switch step {
	case NoStep:
		return s
	case Create:
		return State{Signing: created, Since: now}
	case Announce:
		s.Next, s.Requested = created, false
	case Promote:
		s.Signing, s.Next, s.Former = s.Next, CA{}, s.Signing
		s.Former.Key = nil
	case Retire:
		s.Former = CA{}
	}
	s.Since = now
	return s
}

// Bundle returns the certificates of all trusted CAs, in PEM.
func (s State) Bundle() []byte {
	return bytes.Join([][]byte{s.Signing.Cert, s.Next.Cert, s.Former.Cert}, nil)
}
