package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// startFake starts a group for tests, and returns the addresses of its two agents.
func startFake(t *testing.T) (api, other string) {
	t.Helper()
	var free [2]string
	for i := range free {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must.Succeed(t, err)
		free[i] = listener.Addr().String()
		must.Succeed(t, listener.Close())
	}
	f := &fake{group: "ledger", api: free[0], other: free[1], lease: 500 * time.Millisecond, log: slog.New(
		slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must.Succeed(t, testwait.Receive(t, "the end of both members", ended))
	})
	return "http://" + free[0], "http://" + free[1]
}

func stepDown(t *testing.T, agent string) {
	t.Helper()
	testwait.NoError(t, func() error {
		response, err := http.Post(agent+"/v1/groups/ledger/step-down", "", nil)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
}

// An application leads when it is ready, loses the office and leads again with a higher token, as its test demands.
func TestFakeGroupLeadsOnRequest(t *testing.T) {
	api, other := startFake(t)
	tokens, lost := make(chan uint64, 10), make(chan struct{}, 10) // without processor time, it may lead more often
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		for ctx.Err() == nil {
			_ = client.Run(ctx, "ledger", func(ctx context.Context, token uint64) error {
				tokens <- token
				<-ctx.Done()
				lost <- struct{}{}
				return nil
			}, client.At(api))
		}
		close(ended)
	}()
	first := testwait.Receive(t, "the application leads", tokens)
	stepDown(t, api)
	testwait.Receive(t, "the application is told to stop", lost)
	stepDown(t, other)
	expect.AtLeastf(t, testwait.Receive(t, "the application leads again", tokens), first+1,
		"token after %d", first)
	cancel()
	testwait.Receive(t, "the application is told to stop", lost)
	testwait.Receive(t, "the end of the application", ended)
}

func TestFakeGroupReportsInvalidFlags(t *testing.T) {
	for want, f := range map[string]fake{
		"--group must consist of lower-case letters": {group: "Ledger!", lease: time.Second},
		"--group must be a name":                     {lease: time.Second},
		"--lease must be longer than 200ms":          {group: "ledger", lease: 200 * time.Millisecond},
		"at most 10m0s, such as 500ms, got 1h0m0s":   {group: "ledger", lease: time.Hour},
		"HOST:PORT": {group: "ledger", lease: time.Second, api: "localhost"},
	} {
		f.other, f.log = "127.0.0.1:2", slog.New(slog.DiscardHandler)
		if f.api == "" {
			f.api = "127.0.0.1:1"
		}
		err := f.run(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one line with %q", err, want)
		}
	}
}
