package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/clusteraccess/operatorlease"
	"github.com/conclave-dev/conclave/internal/describe"
)

// printer prints the changes of a group. It is a groupwatch.Handler.
type printer struct {
	out     io.Writer
	changes describe.ChangeLog
	// disconnected: the API server didn't respond to the last request.
	disconnected bool

	mutex sync.Mutex // guards notes
	notes io.Writer
}

const timestamp = "2006-01-02T15:04:05.000Z"

// Replace implements groupwatch.Handler, as the other exported methods do.
func (p *printer) Replace(groups []v1.ElectionGroup) {
	p.Connected()
	if len(groups) == 0 {
		p.Set(nil)
		return
	}
	p.Set(&groups[0])
}

// Set prints what has changed of the group, which is nil if it doesn't exist.
func (p *printer) Set(g *v1.ElectionGroup) {
	now := time.Now()
	for _, text := range p.changes.Append(g, now) {
		fmt.Fprintf(p.out, "%s  %s\n", now.UTC().Format(timestamp), text)
	}
}

// Delete prints that the group doesn't exist any more.
func (p *printer) Delete(*v1.ElectionGroup) { p.Set(nil) }

// Connected prints that the API server has responded, if it didn't before.
func (p *printer) Connected() {
	if p.disconnected {
		p.disconnected = false
		p.note(connectionText(nil))
	}
}

// Failed prints that the API server is unreachable, once. It ends the watch if access is denied.
func (p *printer) Failed(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return clusteraccess.RequestError(err)
	}
	if !p.disconnected {
		p.disconnected = true
		p.note(connectionText(err))
	}
	return nil
}

func (p *printer) note(text string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	fmt.Fprintln(p.notes, text)
}

func connectionText(err error) string {
	if err == nil {
		return "the API server is reachable again"
	}
	return fmt.Sprintf("cannot watch the group; retrying: %s", clusteraccess.RequestError(err))
}

var errNoResponse = errors.New("the API server does not respond")

// observeOperator prints whether the operator runs: without it, a group looks as if nothing happened. It reads the
// Lease of the operator, and says nothing about the operator while it can't. It also notices an API server that hangs,
// which a watch doesn't.
func (p *printer) observeOperator(
	ctx context.Context, read func(context.Context) (*coordinationv1.Lease, error), now func() time.Time,
) {
	silent, hung := false, false
	operatorlease.Watch(ctx, read, now, func(since time.Time, err error) {
		hangs := errors.Is(err, context.DeadlineExceeded)
		if hangs && !hung {
			p.note(connectionText(errNoResponse))
		} else if hung && !hangs {
			p.note(connectionText(nil))
		}
		hung = hangs
		if err != nil || since.IsZero() != silent {
			return
		}
		if silent = !silent; silent {
			p.note(clusteraccess.SilenceText("The operator", now().Sub(since)))
		} else {
			p.note("the operator runs again")
		}
	})
}
