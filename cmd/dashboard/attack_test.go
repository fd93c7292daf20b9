package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestOtherSitesCannotUseTheSession: a web site that the user visits can neither read the page
// nor log anybody in or out.
func TestOtherSitesCannotUseTheSession(t *testing.T) {
	e := newEnv(t)
	e.start()
	alice := e.user("alice")
	e.grant(alice, e.a, read)
	token := e.token(alice)
	b := e.browser()
	response := b.send(http.MethodPost, "/login", "token="+token, nil)
	cookie := response.Header.Get("Set-Cookie")
	for _, want := range []string{"__Host-conclave=", "HttpOnly", "Secure", "SameSite=Strict", "Path=/"} {
		if !strings.Contains(cookie, want) {
			t.Errorf("got cookie %q, want %s in it", cookie, want)
		}
	}
	if strings.Contains(cookie, token) || strings.Contains(cookie, "Domain") {
		t.Errorf("got cookie %q, want neither the token nor a domain", cookie)
	}
	for name, c := range map[string]struct {
		method, path string
		header       map[string]string
		want         int
	}{
		"the page itself":                 {"GET", "/session", map[string]string{"Sec-Fetch-Site": "same-origin"}, http.StatusOK},
		"a name that resolves to us":      {"GET", "/session", map[string]string{"Host": "evil.example"}, http.StatusMisdirectedRequest},
		"the address":                     {"GET", "/session", map[string]string{"Host": "127.0.0.1"}, http.StatusMisdirectedRequest},
		"a link":                          {"GET", "/", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, http.StatusOK},
		"a script":                        {"GET", "/events", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, http.StatusForbidden},
		"a script of a sibling domain":    {"GET", "/events", map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, http.StatusForbidden},
		"login by another site":           {"POST", "/login", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, http.StatusForbidden},
		"login by another site, old ways": {"POST", "/login", map[string]string{"Origin": "https://evil.example"}, http.StatusForbidden},
		"logout by another site":          {"POST", "/logout", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, http.StatusForbidden},
		"logout by a sibling domain":      {"POST", "/logout", map[string]string{"Sec-Fetch-Site": "same-site"}, http.StatusForbidden},
		"logout by a link":                {"GET", "/logout", nil, http.StatusNotFound},
		"a change":                        {"DELETE", "/events/" + e.a + "/ledger", nil, http.StatusMethodNotAllowed},
		"a form that is too large":        {"POST", "/login", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, http.StatusRequestEntityTooLarge},
	} {
		body := ""
		if c.want == http.StatusRequestEntityTooLarge {
			body = "token=" + strings.Repeat("x", 20<<10)
		}
		got := b.send(c.method, c.path, body, c.header)
		if got.StatusCode != c.want {
			t.Errorf("%s: got status %s, want %d", name, got.Status, c.want)
		}
		if policy := got.Header.Get("Content-Security-Policy"); c.want != http.StatusRequestEntityTooLarge && !strings.Contains(policy, "frame-ancestors 'none'; form-action 'self'") {
			t.Errorf("%s: got policy %q", name, policy)
		}
	}
	if got := b.get("/session", nil); got.Text != `{"local":false,"user":"system:serviceaccount:`+e.a+`:alice"}`+"\n" {
		t.Errorf("got session %q, want that of alice", got.Text)
	}
}

// TestGuessingTokensIsLimited: the API server gets few TokenReviews, and sessions still work.
func TestGuessingTokensIsLimited(t *testing.T) {
	e := newEnv(t)
	e.start()
	alice := e.user("alice")
	e.grant(alice, e.a, read)
	token := e.token(alice)
	user, guesser := e.browser(), e.browser()
	if got := user.login(token); got != http.StatusSeeOther {
		t.Fatalf("got status %d after the login", got)
	}
	const guesses = 300
	begin := time.Now()
	refused, limited := 0, 0
	for i := range guesses {
		switch got := guesser.get("/events", map[string]string{"Authorization": fmt.Sprint("Bearer guess-", i)}).StatusCode; got {
		case http.StatusUnauthorized:
			refused++
		case http.StatusTooManyRequests:
			limited++
		default:
			t.Fatalf("got status %d, want 401 or 429", got)
		}
	}
	// 50 at once and then 10 per second: see package multiuser.
	if most := 51 + 10*int(time.Since(begin).Seconds()+1); refused > most || limited == 0 {
		t.Errorf("got %d guesses reviewed of %d, want at most %d", refused, guesses, most)
	}
	e.expectVisible("a session", user.open("/events", ""), e.a+"/ledger")
	e.expectVisible("a token that was accepted before", e.browser().open("/events", token), e.a+"/ledger")
}

// memoryLimit returns that of config/dashboard.
func memoryLimit(t *testing.T) int {
	t.Helper()
	text := must.ReadFile(t, "../../config/dashboard/dashboard.yaml")
	found := regexp.MustCompile(`limits:\s+memory: ([0-9]+)Mi`).FindSubmatch(text)
	if found == nil {
		t.Fatal("config/dashboard has no memory limit")
	}
	limit, err := strconv.Atoi(string(found[1]))
	must.Succeed(t, err)
	return limit << 20
}

// peakMemory returns the most memory that the dashboard has ever occupied.
func (e *env) peakMemory() int {
	e.t.Helper()
	text := must.ReadFile(e.t, filepath.Join("/proc", strconv.Itoa(e.pid), "status"))
	var kib int
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	e.t.Fatal("no peak of memory")
	return 0
}

// TestMemory: the dashboard stays below 64 MiB with 1,000 groups and 50 open pages, and below
// its limit while clients without credentials never finish their requests. Users can still log
// in meanwhile, and open pages stay open.
func TestMemory(t *testing.T) {
	const (
		groups, pages  = 1000, 50
		hosts, perHost = 4, 250
		goal           = 80 << 20 // GOMEMLIMIT: beyond it, the garbage collector would run all the time
		mostForClients = 32 << 20
	)
	e := newEnv(t)
	for i := range groups {
		g := e.group(e.a, fmt.Sprintf("group-%03d", i))
		g.Status = filledStatus(g)
		must.Succeed(t, e.Status().Update(t.Context(), g))
	}
	e.start()
	t.Logf("peak of memory at the start: %d MiB", e.peakMemory()>>20)
	alice := e.user("alice")
	e.grant(alice, e.a, read)
	b := e.browser()
	if got := b.login(e.token(alice)); got != http.StatusSeeOther {
		t.Fatalf("got status %d after the login", got)
	}
	begin := time.Now()
	if got := e.visible(b.open("/events", "")); len(got) != groups+1 {
		t.Fatalf("got %d groups, want %d", len(got), groups+1)
	}
	t.Log("time until the overview has arrived:", time.Since(begin))
	t.Logf("peak of memory with one page: %d MiB", e.peakMemory()>>20)
	var streams []events
	for i := range pages / 2 {
		second := e.user(fmt.Sprint("user-", i))
		e.grant(second, e.a, read)
		token := e.token(second)
		for _, path := range []string{"/events", fmt.Sprintf("/events/%s/group-%03d", e.a, i)} {
			stream := e.browser().open(path, token)
			e.next(stream, "the first event")
			streams = append(streams, stream)
		}
	}
	before := e.peakMemory()
	t.Logf("peak of memory with %d groups and %d pages: %d MiB", groups, pages, before>>20)
	if before > goal {
		t.Errorf("got a peak of %d MiB of memory, want at most %d MiB", before>>20, goal>>20)
	}

	var attackers sync.WaitGroup
	for i := range hosts * perHost {
		host := net.IPv4(127, 0, 2, byte(1+i%hosts))
		attackers.Go(func() { e.sendHalf(host, i) })
	}
	attackers.Wait()
	user := e.browser()
	if got := user.login(e.token(alice)); got != http.StatusSeeOther {
		t.Errorf("got status %d after the login during the attack", got)
	}
	e.expectVisibleCount(user.open("/events", ""), groups+1)
	for i, stream := range streams {
		select {
		case _, ok := <-stream:
			if !ok {
				t.Errorf("stream %d ended during the attack", i)
			}
		default:
		}
	}
	// Without limits, each of these clients would occupy 50 KiB.
	if peak, most := e.peakMemory(), min(memoryLimit(t), before+mostForClients); peak > most {
		t.Errorf("got a peak of %d MiB of memory, want at most %d MiB", peak>>20, most>>20)
	} else {
		t.Logf("peak of memory with %d unfinished requests: %d MiB", hosts*perHost, peak>>20)
	}
}

func (e *env) expectVisibleCount(from events, want int) {
	e.t.Helper()
	if got := len(e.visible(from)); got != want {
		e.t.Errorf("got %d groups, want %d", got, want)
	}
}

// sendHalf sends a part of a request from a host, and leaves the connection open. The server may
// close it at any time.
func (e *env) sendHalf(host net.IP, i int) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: host}, Timeout: time.Minute}
	plain, err := dialer.DialContext(e.t.Context(), "tcp", e.address)
	if err != nil {
		e.t.Error(err)
		return
	}
	e.t.Cleanup(func() { _ = plain.Close() })
	conn := tls.Client(plain, e.tlsConfig())
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	half := "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 15<<10)
	if i%2 == 0 {
		half = "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16000\r\n\r\ntoken=" + strings.Repeat("x", 15000)
	}
	_, _ = io.WriteString(conn, half) // The server may have closed the connection.
}

// filledStatus returns a status of the usual size.
func filledStatus(g *v1.ElectionGroup) v1.ElectionGroupStatus {
	now := metav1.NowMicro()
	s := v1.ElectionGroupStatus{
		ObservedGeneration: 1, Members: new(int32(5)), ReadyMembers: new(int32(5)), Term: 7,
		MemberList:  &v1.MemberList{Version: 1, State: v1.ListSettled, Members: g.Spec.Members},
		Coordinator: &v1.Coordinator{Pod: g.Spec.Members[4].Pod, Priority: 50, Term: 7, ElectedAt: now},
	}
	for _, m := range g.Spec.Members {
		s.Processes = append(s.Processes, v1.Process{Pod: m.Pod, Priority: m.Priority, Status: v1.ProcessNormal, Since: new(metav1.Now())})
	}
	for i := range 10 {
		tenure := v1.Tenure{Number: int64(10 - i), Pod: g.Spec.Members[i%5].Pod, Term: int64(20 - i), From: now, GapMicros: new(int64(4812))}
		if i > 0 {
			tenure.Until, tenure.EndReason = &now, v1.EndCrash
		}
		s.History = append(s.History, tenure)
	}
	for _, of := range []v1.ConditionType{v1.ConditionReady, v1.ConditionAvailable, v1.ConditionAgreed, v1.ConditionDegraded, v1.ConditionProgressing} {
		s.Conditions = append(s.Conditions, metav1.Condition{
			Type: string(of), Status: metav1.ConditionTrue, Reason: "Healthy", Message: "The group is healthy", LastTransitionTime: metav1.Now(),
		})
	}
	return s
}

// TestPlainHTTP: without TLS, only a proxy in the same pod can connect.
func TestPlainHTTP(t *testing.T) {
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--host", "a"}, `--certificates must be set, or --address must be a loopback address such as 127.0.0.1:8080`},
		{[]string{"--host", "a", "--address", "0.0.0.0:8080"}, `tokens must not cross the network without TLS; got "0.0.0.0:8080"`},
		{[]string{"--host", "a", "--address", "localhost:8080"}, `--address must be a loopback address`},
		{[]string{"--host", "a", "--address", "8080"}, `--address must be HOST:PORT or :PORT, got "8080"`},
		{[]string{"--address", "127.0.0.1:0"}, `--host must be set to the names by which users reach the server`},
		{[]string{"--address", "127.0.0.1:0", "--host", "a:80"}, `--host must be a host name or an IP address, without a port, got "a:80"`},
		{[]string{"--certificates", "/missing", "--host", "a"}, `--certificates must be a folder with tls.crt and tls.key`},
		{[]string{"extra"}, `unknown command "extra"`},
	} {
		root := newRoot()
		root.SetArgs(c.flags)
		err := root.ExecuteContext(t.Context())
		if use := (*command.UsageError)(nil); !errors.As(err, &use) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got error %v, want %s", c.flags, err, c.want)
		}
	}
	e := newEnv(t)
	e.start("--address", "127.0.0.1:0")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+e.address+"/session", http.NoBody)
	must.Succeed(t, err)
	request.Host = "localhost"
	response, err := http.DefaultClient.Do(request)
	must.Succeed(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("got status %s on loopback, want 200", response.Status)
	}
}
