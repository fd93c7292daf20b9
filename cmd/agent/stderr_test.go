package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestAgentOutlivesTheReaderOfItsLog: stderr is a pipe, or a socket as some supervisors
// use, and its reader ends. The agent continues, and counts the lost lines.
func TestAgentOutlivesTheReaderOfItsLog(t *testing.T) {
	a := startSocketAgent(t, "")
	for name, connect := range map[string]func() (reader, writer *os.File, err error){
		"a pipe": os.Pipe, "a socket": socketPair,
	} {
		t.Run(name, func(t *testing.T) {
			a.kill()
			reader, writer, err := connect()
			must.Succeed(t, err)
			a.stderr = writer
			a.start()
			_ = writer.Close() // Only the agent writes to it.
			testwait.Until(t, "the agent responds", func() bool { _, err := a.metrics(); return err == nil })
			_ = reader.Close()
			file, err := os.OpenFile(a.config, os.O_APPEND|os.O_WRONLY, 0)
			must.Succeed(t, err)
			defer file.Close()
			lost := regexp.MustCompile(`\nconclave_log_lines_dropped_total [1-9]`)
			testwait.Until(t, "lines are lost", func() bool {
				_, err := file.WriteString("# a change, which the agent logs\n")
				must.Succeed(t, err)
				text, err := a.metrics()
				if errors.Is(err, unix.ECONNREFUSED) {
					t.Fatal("the agent has ended")
				}
				return lost.MatchString(text)
			})
		})
	}
}

func socketPair() (reader, writer *os.File, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(ends[0]), "reader"), os.NewFile(uintptr(ends[1]), "writer"), nil
}

// metrics returns the metrics of the agent.
func (a *socketAgent) metrics() (string, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", a.socket)
	}
	caller := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}, Timeout: time.Minute}
	request, err := http.NewRequestWithContext(a.t.Context(), http.MethodGet, "http://localhost/metrics", http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := caller.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}
