package agents_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"testing"

	"github.com/go-logr/logr"

	"github.com/conclave-dev/conclave/internal/operator/agents"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// A session doesn't wait within crypto/tls, but reads until there is nothing more. So it must
// neither lose nor overlook anything, wherever records of TLS and lines are cut.
func TestReportsArriveInAnyPieces(t *testing.T) {
	const event = "event: group\ndata: {\"group\":\"ledger\",\"uid\":\"u\",\"term\":%d}\n\n"
	for name, c := range map[string]struct {
		chunked bool
		// together: the first report and the header of the response are one write.
		together bool
		// record is the number of bytes in each record of TLS, and segment that in each
		// write of a relay below TLS; 0 if it isn't limited.
		record, segment int
	}{
		"at once":                     {},
		"in chunks":                   {chunked: true},
		"with the header":             {together: true},
		"in chunks, with the header":  {chunked: true, together: true},
		"a record for each byte":      {record: 1},
		"records cut anywhere":        {segment: 7},
		"small records, cut anywhere": {record: 3, segment: 11},
		"chunks, cut anywhere":        {chunked: true, segment: 13},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarnessBehindRelay(t, c.segment)
			a := h.newAgent("ledger-0", "10.0.0.1", "ledger")
			idle := make(chan struct{})
			err := a.ServeRaw(t.Context(), func(conn net.Conn) {
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
					return
				}
				out := bufio.NewWriter(inPieces(conn, c.record))
				header, body := "HTTP/1.1 200 OK\r\n\r\n", io.Writer(out)
				if c.chunked {
					header, body = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", httputil.NewChunkedWriter(out)
				}
				_, _ = out.WriteString(header)
				if !c.together {
					_ = out.Flush()
				}
				_, _ = fmt.Fprintf(body, event+": comment\nevent: current\ndata: {\"groups\":[\"ledger\"]}\n\n", 1)
				_ = out.Flush()
				<-idle
				_, _ = fmt.Fprintf(body, event, 2)
				_, _ = fmt.Fprintf(body, event, 3)
				_ = out.Flush()
				<-t.Context().Done()
			})
			must.Succeed(t, err)
			h.follow("ledger-0", "1", "10.0.0.1")
			termIs := func(term uint64) func() bool {
				return h.reports("ledger", "ledger-0", func(r control.Report) bool { return r.Term == term })
			}
			h.eventually("the first report is stored", termIs(1))
			h.eventually("the agent is connected", h.connected("ledger-0"))
			close(idle)
			h.eventually("the last report is stored", termIs(3))
		})
	}
}

// pieces writes a limited number of bytes at a time.
type pieces struct {
	to   io.Writer
	size int
}

func inPieces(to io.Writer, size int) io.Writer {
	if size == 0 {
		return to
	}
	return pieces{to, size}
}

func (p pieces) Write(b []byte) (written int, err error) {
	for err == nil && written < len(b) {
		var n int
		n, err = p.to.Write(b[written:min(written+p.size, len(b))])
		written += n
	}
	return written, err
}

// newHarnessBehindRelay returns a harness whose connections lead through a relay, which passes
// on what agents send in segments of this size. There is no relay if it is 0.
func newHarnessBehindRelay(t *testing.T, segment int) *harness {
	t.Helper()
	if segment == 0 {
		return newHarness(t)
	}
	h := &harness{certificates: newCertificates(t)}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		agent, err := h.network.Dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		client, err := (&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String())
		if err != nil {
			return nil, err
		}
		relayed, err := listener.Accept()
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, func() { _, _ = agent.Close(), relayed.Close() })
		go func() { _, _ = io.Copy(agent, relayed) }()
		go func() { _, _ = io.Copy(inPieces(relayed, segment), agent) }()
		return client, nil
	}
	return h.start(t, agents.Options{Credentials: h.certificates, Dial: dial, Log: logr.Discard()})
}
