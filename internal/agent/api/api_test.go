package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestLeader(t *testing.T) {
	s := newFakeGroup()
	at := "http://" + startAPI(t, s) + "/v1/groups/ledger/leader"

	code, text := request(t, http.MethodGet, at, "")
	equal(t, http.StatusServiceUnavailable, code)
	equal(t, `{"group":"ledger","self":"a","coordinator":"e","leading":false,"priority":50,"term":7,"token":0}`+"\n", text)

	remaining := int64(412)
	s.set(func(l *group.Leader) {
		l.Coordinator, l.Priority, l.Leading, l.Token, l.RemainingMillis = "a", 10, true, 7<<20|10, &remaining
	})
	code, text = request(t, http.MethodGet, at, "")
	equal(t, http.StatusOK, code)
	equal(t,
		`{"group":"ledger","self":"a","coordinator":"a","leading":true,"priority":10,"term":7,"token":7340042}`+"\n", text)

	// A health check may use HEAD.
	code, text = request(t, http.MethodHead, at, "")
	equal(t, http.StatusOK, code)
	equal(t, "", text)
}

func TestStatusHasCurrentLeader(t *testing.T) {
	s := newFakeGroup()
	s.set(func(l *group.Leader) { l.Leading, l.Token = true, 1 })
	code, text := request(t, http.MethodGet, "http://"+startAPI(t, s)+"/v1/groups/ledger/status", "")
	equal(t, http.StatusOK, code)
	if !strings.Contains(text, `"leading":false`) || !strings.Contains(text, `"algorithm":"StatusTable"`) {
		t.Fatal(text)
	}
}

// TestLengthIsKnown: net/http leaves it out if the body is large.
func TestLengthIsKnown(t *testing.T) {
	w := httptest.NewRecorder()
	writeJSON(w, http.StatusOK, strings.Repeat("x", 5000))
	expect.Equalf(t, w.Header().Get("Content-Length"), strconv.Itoa(w.Body.Len()), "length")
}

func TestResponses(t *testing.T) {
	s := newFakeGroup()
	s.stepDown = func(_ context.Context, to string) (group.Leader, error) {
		if to == "d" {
			return group.Leader{Group: "ledger", Self: "a", Coordinator: "d", Priority: 40, Term: 8}, nil
		}
		return group.Leader{}, map[string]error{
			"": group.ErrNoSuccessor, "self": group.ErrNotLeading, "late": group.ErrHandOverTimeout, "left": group.ErrClosed,
			"odd": errors.New("odd"),
		}[to]
	}
	at := "http://" + startAPI(t, s)
	// In the file, a request is its method, path and body. With -rewrite, the test replaces the answers.
	datadriven.RunTest(t, "testdata/requests.txt", func(t *testing.T, d *datadriven.TestData) string {
		method, target, _ := strings.Cut(d.Input, " ")
		path, body, _ := strings.Cut(target, " ")
		code, text := request(t, method, at+path, body)
		expect.AtMostf(t, strings.Count(text, "\n"), 1, "%s: lines", d.Input)
		return strings.TrimSpace(fmt.Sprint(code, " ", text)) + "\n"
	})
	code, text := request(t, http.MethodPost, at+"/v1/groups/ledger/step-down", `{"to":"d"}`+strings.Repeat(" ", bodyMax))
	expect.Equalf(t, code, http.StatusRequestEntityTooLarge, "status for a long body")
	expect.Containsf(t, text, "at most 4096 bytes", "answer to a long body")
}

// TestOnlyExplicitRequestsGetPromise: a promise delays a handover, and load balancers send GET requests.
func TestOnlyExplicitRequestsGetPromise(t *testing.T) {
	s, millis := newFakeGroup(), int64(400)
	s.set(func(l *group.Leader) { l.Leading, l.Token, l.RemainingMillis = true, 7, &millis })
	leader := "http://" + startAPI(t, s) + "/v1/groups/ledger/leader"
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		if code, text := request(t, method, leader, ""); code != http.StatusOK || strings.Contains(text, "remainingMillis") {
			t.Errorf("%s: got %d %s, want 200 without a promise", method, code, text)
		}
	}
	equal(t, 0, s.promises)
	if code, text := request(t, http.MethodGet, leader+"?promiseMillis=300", ""); code != http.StatusOK ||
		!strings.Contains(text, `"remainingMillis":300`) {
		t.Errorf("got %d %s, want 200 with a promise", code, text)
	}
	equal(t, 1, s.promises)
}

func TestReadyzListsProblems(t *testing.T) {
	s := newFakeGroup()
	s.problems = []string{"ledger: no majority is connected", "ledger: no application"}
	code, text := request(t, http.MethodGet, "http://"+startAPI(t, s)+"/readyz", "")
	equal(t, http.StatusServiceUnavailable, code)
	equal(t, "ledger: no majority is connected\nledger: no application\n", text)
}

// TestReadyzNamesProblemsOfPeersAndIneligibleMembers: only if the client asks, and such a member is ready.
func TestReadyzNamesProblemsOfPeersAndIneligibleMembers(t *testing.T) {
	s := newFakeGroup()
	at := "http://" + startAPI(t, s) + "/readyz"
	check := func(query, want string) {
		t.Helper()
		code, text := request(t, http.MethodGet, at+query, "")
		equal(t, http.StatusOK, code)
		equal(t, want, text)
	}
	check("?verbose", "ok\n")
	s.others = []string{"ignoring peer c"}
	check("", "ok\n")
	check("?verbose", "ok\nignoring peer c\n")
	s.others = nil
	s.ineligible = group.ProbeFails
	check("", "ok\n")
	check("?verbose", "ok\ngroup ledger: not eligible: the probe of its application fails\n")
	s.ineligible, s.heldBack = group.Eligible, time.Date(2026, 1, 1, 16, 4, 10, 0, time.UTC)
	check("", "ok\n")
	check("?verbose",
		"ok\ngroup ledger: held back until 16:04:10 UTC, because its last 3 tenures were short: see why they ended\n")
}

func TestWebPagesAreRejected(t *testing.T) {
	at := startAPI(t, newFakeGroup())
	for _, c := range []struct {
		host, header, value string
		code                int
	}{
		{at, "", "", 503},
		{"localhost:1", "", "", 503},
		{"LOCALHOST", "", "", 503},
		{"[::1]:7374", "", "", 503},
		{"::1", "", "", 503},
		{"evil.example", "", "", 403},
		{"evil.example:7374", "", "", 403},
		{"localhost.evil.example", "", "", 403},
		{at, "Origin", "http://" + at, 503},
		{at, "Origin", "http://evil.example", 403},
		{at, "Sec-Fetch-Site", "none", 503},
		{at, "Sec-Fetch-Site", "cross-site", 403},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://"+at+"/v1/groups/ledger/leader", http.NoBody)
		must.Succeed(t, err)
		request.Host = c.host
		if c.header != "" {
			request.Header.Set(c.header, c.value)
		}
		response, err := http.DefaultClient.Do(request)
		must.Succeed(t, err)
		response.Body.Close()
		expect.Equalf(t, response.StatusCode, c.code, "host %s, %s: %s", c.host, c.header, c.value)
	}

	// On other addresses (exposeAPI), the agent may have any host name.
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://agent.bank.svc/v1/groups", http.NoBody)
	request = request.WithContext(context.WithValue(request.Context(), http.LocalAddrContextKey,
		net.Addr(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7374})))
	recorder := httptest.NewRecorder()
	New(newFakeGroup(), nil).ServeHTTP(recorder, request)
	equal(t, http.StatusOK, recorder.Code)
}

func TestInvalidRequests(t *testing.T) {
	at := startAPI(t, newFakeGroup())
	huge := strings.Repeat("x", maxHeaderBytes+8<<10)
	for name, c := range map[string]struct{ request, status string }{
		"huge header":    {"GET /v1/groups HTTP/1.1\r\nHost: localhost\r\nX: " + huge + "\r\n\r\n", "431"},
		"huge path":      {"GET /" + huge + " HTTP/1.1\r\nHost: localhost\r\n\r\n", "431"},
		"no host":        {"GET /v1/groups HTTP/1.1\r\n\r\n", "400"},
		"no HTTP":        {"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", "400"},
		"two hosts":      {"GET /v1/groups HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n", "400"},
		"other protocol": {"GET /v1/groups HTTP/2.0\r\nHost: localhost\r\n\r\n", "505"},
		"huge length": {
			"POST /v1/groups/ledger/step-down HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n" +
				huge[:bodyMax+1], "413",
		},
	} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", at)
		must.Succeed(t, err)
		_, err = io.WriteString(conn, c.request)
		must.Succeed(t, err)
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, fmt.Sprintf("HTTP/1.1 %s ", c.status)) {
			t.Errorf("%s: got %q, %v, want %s", name, line, err, c.status)
		}
		conn.Close()
	}
}

// TestConnectionsAreLimited: clients must not exhaust the memory of an agent, whether they
// are idle, or have sent a part of a request.
func TestConnectionsAreLimited(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, listener, New(newFakeGroup(), nil))
	}()
	defer func() {
		cancel()
		expect.Succeed(t, <-ended)
	}()
	var conns []net.Conn
	for i := range localLimits.Unpinned + localLimits.Unpinned/2 {
		conn, err := net.Dial("tcp", listener.Addr().String())
		must.Succeed(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		if i%2 == 0 {
			if _, err := io.WriteString(conn,
				"POST /v1/groups/ledger/step-down HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"); err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
			continue
		}
		_, err = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		must.Succeed(t, err)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // it ends with the connection
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatal("got no response on the newest connection:", err)
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns[:2] {
		// The server's own timeouts are longer.
		must.Succeed(t, conn.SetReadDeadline(time.Now().Add(readTimeout/2)))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("one of the oldest connections is still open")
		}
	}
}
