package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/group"
)

// probe checks the health of the application periodically and reports it to the group. The application is unhealthy
// until the first successful probe, and after several failures in a row, or when nobody listens: then it has ended. One
// success makes it healthy again.
func probe(ctx context.Context, p config.Probe, g *group.Group) {
	client := &http.Client{
		Timeout: p.Timeout,
		// A new connection tests whether the application still accepts one.
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	ticker := time.NewTicker(p.Period)
	defer ticker.Stop()
	_ = g.ReportProbe(ctx, false) // ReportProbe fails only if the agent has left the group.
	for failures := 0; ; {
		switch err := probeOnce(ctx, client, p.URL); {
		case err == nil:
			failures = 0
			_ = g.ReportProbe(ctx, true)
		default:
			if failures++; failures >= p.Failures || errors.Is(err, syscall.ECONNREFUSED) {
				_ = g.ReportProbe(ctx, false)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func probeOnce(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.CopyN(io.Discard, response.Body, 1<<16); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("the application responded with %s", response.Status)
	}
	return nil
}
