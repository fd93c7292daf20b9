// Package authority is the manager's: who signs the certificates of agents, of
// the operator, and of the servers in the manager.
//
// An authority is valid for a year. Before it ends, the next one takes over in
// steps, each of which is one write of one Secret:
//
//	            announce              promote               retire
//	trusted   A    |      A and B        |      B and A        |    B
//	signs     A    |      A              |      B              |    B
//	               |<----- 48 h -------->|<----- 48 h -------->|
//
// No certificate is valid for more than 24 h, and no replica goes by what it
// read more than 12 h ago. So whoever has been given certificates and
// authorities within the last 24 h trusts all others who have been, in spite of
// clocks that differ by hours, and wherever a replica crashes.
//
// That includes the authorities in ConfigMaps, which a replica writes that may
// have been away: so an authority is promoted by a replica that has known it for
// 24 h itself, and has had that time to bring ConfigMaps up to date.
//
// It is guaranteed as long as some replica runs for a day within the last month
// of an authority. If an authority has expired, the next one signs at once.
package authority

import (
	"bytes"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// +kubebuilder:rbac:groups="",namespace=conclave-system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=conclave-system,resources=secrets,resourceNames=conclave-ca,verbs=get;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=conclave,verbs=get;list;watch;patch

const (
	// Valid is for how long an authority may sign.
	Valid = 365 * 24 * time.Hour
	// CertificateValid is for how long what it signs is valid.
	CertificateValid = 24 * time.Hour
)

// Schedule says when an authority follows another.
type Schedule struct {
	// Before its end, an authority announces the next one.
	Before time.Duration
	// Overlap is how long both are trusted before the next one signs, and again
	// after that.
	Overlap time.Duration
	// Known is for how long a replica must have known an announced authority
	// itself before it promotes it.
	Known time.Duration
}

// usual is the schedule of the manager.
var usual = Schedule{Before: 30 * 24 * time.Hour, Overlap: 48 * time.Hour, Known: CertificateValid}

// Root is an authority's certificate with its key, and until when it is valid.
// A former one has no key any more.
type Root struct {
	identity.Pair
	Until time.Time
}

func (r Root) exists() bool { return len(r.Cert) > 0 }

func (r Root) signs(now time.Time) bool { return len(r.Key) > 0 && now.Before(r.Until) }

// State is all that is known of the authorities.
type State struct {
	// Signing signs. It doesn't exist yet in a new State.
	Signing Root
	// Next is trusted, and doesn't sign yet.
	Next Root
	// Former is still trusted, and signs no more.
	Former Root
	// Since is when the last step was taken.
	Since time.Time
}

// Step is what is to be done with a State.
type Step string

// The steps.
const (
	Stay     Step = ""
	Make     Step = "make"
	Announce Step = "announce"
	Promote  Step = "promote"
	Retire   Step = "retire"
)

// Due is the step that is due now, for a replica that has known the State's Next
// for a while.
func (s Schedule) Due(state State, now time.Time, known time.Duration) Step {
	passed := now.Sub(state.Since) >= s.Overlap
	switch {
	case !state.Signing.signs(now) && state.Next.signs(now):
		return Promote // too late for anything better
	case !state.Signing.signs(now):
		return Make
	case state.Former.exists():
		if passed {
			return Retire
		}
	case state.Next.exists():
		if passed && known >= s.Known {
			return Promote
		}
	case state.Signing.Until.Sub(now) <= s.Before:
		return Announce
	}
	return Stay
}

// After is the State after a step. Make and Announce take a fresh authority.
func (s State) After(step Step, now time.Time, fresh Root) State {
	switch step {
	case Stay:
		return s
	case Make:
		return State{Signing: fresh, Since: now}
	case Announce:
		s.Next = fresh
	case Promote:
		s.Signing, s.Next, s.Former = s.Next, Root{}, s.Signing
		s.Former.Key = nil
	case Retire:
		s.Former = Root{}
	}
	s.Since = now
	return s
}

// Bundle are the certificates of all that are trusted, in PEM.
func (s State) Bundle() []byte {
	return bytes.Join([][]byte{s.Signing.Cert, s.Next.Cert, s.Former.Cert}, nil)
}
