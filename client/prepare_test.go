//go:build go1.25

package client

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestPreparation: it begins with elect, once, and ends with the tenure, or when the process isn't elected any more.
// Only lead calls the function, which doesn't wait for the preparation.
func TestPreparation(t *testing.T) {
	for name, c := range map[string]struct {
		events           []string
		calls            int
		ended, lead, run bool
	}{
		"elected":                 {[]string{"elect 7"}, 1, false, false, true},
		"elected again":           {[]string{"elect 7", "elect 8"}, 1, false, false, true},
		"not elected any more":    {[]string{"elect 7", "follow 7"}, 1, true, false, true},
		"once more":               {[]string{"elect 7", "follow 7", "elect 8", "follow 7"}, 2, false, false, true},
		"leads":                   {[]string{"elect 7", "lead 7"}, 1, false, true, true},
		"the tenure ends":         {[]string{"elect 7", "lead 7", "lost 7"}, 1, true, true, true},
		"it ends before the call": {[]string{"elect 7", "lost 7"}, 1, true, false, true},
		"Run ends":                {[]string{"elect 7"}, 1, true, false, false},
		"not elected":             {[]string{"follow 7"}, 0, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake, prepared := newFakeAgent(t), make(chan context.Context, 9)
				r := startRun(fake, Prepare(func(ctx context.Context, within time.Duration) {
					if within != 600*time.Millisecond {
						t.Errorf("got %s, want 600ms", within)
					}
					prepared <- ctx
					<-ctx.Done()
				}))
				session := fake.acceptSession(drainTimeout)
				fake.setFollowing("", 6)
				for _, e := range c.events {
					var kind string
					var term uint64
					_, err := fmt.Sscan(e, &kind, &term)
					wantError(t, err, nil)
					if kind == "lead" {
						fake.lead(session, term, minute)
					} else {
						session.send(t, fmt.Sprintf("event: %s\ndata: {\"term\":%d,\"withinMillis\":600}\n\n", kind, term))
					}
					if time.Sleep(time.Second); kind == "lost" && c.lead {
						(<-r.calls).result <- nil
					}
				}
				if !c.run {
					r.end()
				}
				time.Sleep(time.Second)
				if led := len(r.calls) > 0 || c.ended; len(prepared) != c.calls || c.lead && !led || !c.lead && len(r.calls) > 0 {
					t.Fatalf("got %d preparations and %d calls, want %d and %t", len(prepared), len(r.calls), c.calls, c.lead)
				}
				for len(prepared) > 0 {
					if ctx := <-prepared; len(prepared) == 0 && (ctx.Err() != nil) != c.ended {
						t.Errorf("got %v, want that the preparation has ended: %t", ctx.Err(), c.ended)
					}
				}
				for len(r.calls) > 0 {
					(<-r.calls).result <- nil
				}
			})
		})
	}
}
