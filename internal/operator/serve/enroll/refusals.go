package enroll

import (
	"errors"
	"net"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
)

const (
	maxRefusals  = 4096
	refusalLasts = 5 * time.Minute // Agents retry sooner, but another replica may answer.
	maxProblem   = 256             // That is what a row of the status can have.
)

// Refusals remembers why the latest enrollment from a host was refused. A pod's address identifies it also if
// the API server doesn't review its token.
type Refusals struct{ byHost *cache.LRUExpireCache }

// NewRefusals returns Refusals without any.
func NewRefusals() *Refusals { return &Refusals{cache.NewLRUExpireCache(maxRefusals)} }

// Of returns why the agent of a host has no certificate, or "".
func (r *Refusals) Of(host string) string {
	problem, _ := r.byHost.Get(host)
	text, _ := problem.(string)
	return text
}

// record records the result of an enrollment, with the message for the agent.
func (r *Refusals) record(address, message string, err error) {
	host, _, _ := net.SplitHostPort(address)
	if err == nil {
		r.byHost.Remove(host)
		return
	}
	if cause, ok := errors.AsType[*apierrors.StatusError](err); ok && apierrors.IsForbidden(cause) {
		message = cause.Error() // It names the permission that the operator lacks.
	}
	problem := facts.NoCertificate + message
	r.byHost.Add(host, strings.ToValidUTF8(problem[:min(len(problem), maxProblem)], ""), refusalLasts)
}
