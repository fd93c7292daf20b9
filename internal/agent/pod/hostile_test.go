package pod

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// memoryLimit is the limit of the agent's container: see package inject.
const memoryLimit = 64 << 20

// attacker opens connections to one port of an agent, from several hosts, and keeps as many
// of them open as the agent permits.
type attacker struct {
	address string
	hosts   int
	count   int
	// attack uses one connection until it is closed.
	attack func(net.Conn)
	// opened counts the connections.
	opened atomic.Int64
}

// run keeps count connections open until ctx ends.
func (a *attacker) run(ctx context.Context) {
	var attacks sync.WaitGroup
	for n := range a.count {
		attacks.Go(func() {
			for ctx.Err() == nil {
				a.attackOnce(ctx, n)
			}
		})
	}
	attacks.Wait()
}

// allBegun reports whether each attacker has opened all of its connections, and the attackers of each port a tenth more
// than that: the agent has closed some. It may keep those of one attacker.
func allBegun(attackers []*attacker) bool {
	opened, count := map[string]int{}, map[string]int{}
	for _, a := range attackers {
		n := int(a.opened.Load())
		if n < a.count {
			return false
		}
		opened[a.address] += n
		count[a.address] += a.count
	}
	for address, n := range count {
		if opened[address] < n+n/10 {
			return false
		}
	}
	return true
}

func (a *attacker) attackOnce(ctx context.Context, n int) {
	dialer := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 200, 0, byte(1+n%a.hosts))}}
	conn, err := dialer.DialContext(ctx, "tcp", a.address)
	if err != nil {
		return
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	a.opened.Add(1)
	a.attack(conn)
}

// waitClosed reads until the connection is closed.
func waitClosed(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// stallingConn drops what is written after a number of bytes.
type stallingConn struct {
	net.Conn

	rest int
}

func (c *stallingConn) Write(data []byte) (int, error) {
	n := min(len(data), c.rest)
	c.rest -= n
	if _, err := c.Conn.Write(data[:n]); err != nil {
		return 0, err
	}
	return len(data), nil
}

// halfCertificate sends a part of a client certificate of 250 KB.
func halfCertificate(conn net.Conn) {
	junk := bytes.Repeat([]byte{0x30}, 250_000)
	client := tls.Client(&stallingConn{conn, 200_000}, &tls.Config{
		InsecureSkipVerify: true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &tls.Certificate{Certificate: [][]byte{junk}, PrivateKey: anyKey}, nil
		},
	})
	_ = client.HandshakeContext(context.Background())
	waitClosed(conn)
}

// halfRequest sends a request whose body never arrives.
func halfRequest(request string) func(net.Conn) {
	return func(conn net.Conn) {
		_, _ = io.WriteString(conn, request)
		waitClosed(conn)
	}
}

// overTLS attacks after a handshake without a certificate.
func overTLS(attack func(net.Conn)) func(net.Conn) {
	return func(conn net.Conn) { attack(tls.Client(conn, &tls.Config{InsecureSkipVerify: true})) }
}

// flood writes until the connection is closed.
func flood(conn net.Conn) {
	go waitClosed(conn)
	for {
		if _, err := conn.Write(make([]byte, 16<<10)); err != nil {
			return
		}
	}
}

// anyKey is a key for certificates that are never verified.
var anyKey = func() any {
	_, own, err := identity.NewCA("attacker", time.Hour)
	if err != nil {
		panic(err)
	}
	pair, err := tls.X509KeyPair(own.Cert, own.Key)
	if err != nil {
		panic(err)
	}
	return pair.PrivateKey
}()

// TestAttackedAgentIsElected attacks each port of an agent at the same time, without a certificate. It uses less memory
// than the limit of its container, and it becomes coordinator when the previous one ends.
func TestAttackedAgentIsElected(t *testing.T) {
	need.Complete(t)
	binary := buildAgent(t)
	c := newSequentialCluster(t)
	for _, name := range []string{"a", "b", "c"} {
		c.add(name)
	}
	c.publish(c.document(1, "a", "b", "c"))
	commands := map[string]*exec.Cmd{}
	for name, pod := range c.pods {
		commands[name] = pod.run(binary)
	}
	streams := map[string]*stream{}
	for name, pod := range c.pods {
		streams[name] = pod.watch()
		streams[name].await("c is the coordinator", hasCoordinator("c"))
	}
	b := c.pods["b"]
	const put = "PUT /v1/groups/ledger HTTP/1.1\r\nHost: b\r\nContent-Length: 100000\r\n\r\n"
	const post = "POST /v1/groups/ledger/step-down HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
	longHeader := "GET /v1/groups HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 8000)
	watch := "GET /v1/groups/ledger/watch HTTP/1.1\r\nHost: localhost\r\n\r\n"
	attackers := []*attacker{
		{address: b.settings.Peers, hosts: 8, count: 250, attack: halfCertificate},
		{address: b.settings.Peers, hosts: 100, count: 50, attack: waitClosed},
		{address: b.settings.Peers, hosts: 8, count: 20, attack: flood},
		{address: b.settings.Operator, hosts: 8, count: 250, attack: halfCertificate},
		{address: b.settings.Operator, hosts: 100, count: 300, attack: overTLS(halfRequest(put))},
		{address: b.settings.Operator, hosts: 100, count: 50, attack: overTLS(halfRequest(longHeader))},
		{address: b.settings.Operator, hosts: 8, count: 20, attack: overTLS(flood)},
		{address: b.settings.API, hosts: 1, count: 150, attack: halfRequest(post)},
		{address: b.settings.API, hosts: 1, count: 150, attack: halfRequest(longHeader)},
		{address: b.settings.API, hosts: 1, count: 150, attack: halfRequest(watch)},
		{
			address: b.settings.API, hosts: 1, count: 50,
			attack: func(conn net.Conn) { _, _ = io.WriteString(conn, watch); flood(conn) },
		},
	}
	ctx, stop := context.WithCancel(t.Context())
	var attacks sync.WaitGroup
	defer attacks.Wait()
	defer stop()
	for _, a := range attackers {
		attacks.Go(func() { a.run(ctx) })
	}
	pid := commands["b"].Process.Pid
	// Each connection takes a while, because the attackers share the machine with the agents.
	testwait.Within(4*testwait.Limit, time.Millisecond,
		func() bool { return allBegun(attackers) || peakMemory(t, pid) > memoryLimit })
	if !allBegun(attackers) && peakMemory(t, pid) <= memoryLimit {
		for i, a := range attackers {
			t.Errorf("attacker %d of %s has opened %d connections, keeps up to %d", i, a.address, a.opened.Load(), a.count)
		}
		t.FailNow()
	}
	checkMemory := func(when string) {
		peak := peakMemory(t, pid)
		t.Logf("%s, b has used at most %d MiB", when, peak>>20)
		if peak > memoryLimit {
			t.Fatalf("b used %d MiB of memory, want at most %d", peak>>20, memoryLimit>>20)
		}
	}
	checkMemory("when all attacks have begun")
	c.pods["c"].end()
	streams["a"].await("b is the coordinator", hasCoordinator("b"))
	testwait.Until(t, "the local API responds", func() bool {
		status, _ := b.callLocalAPI("/v1/groups/ledger/leader")
		return status == http.StatusOK
	})
	testwait.Until(t, "the kubelet's probe succeeds", func() bool {
		status, _ := b.callOperatorAPI(nil, http.MethodGet, "/healthz", "")
		return status == http.StatusOK
	})
	checkMemory("in the end")
}

// peakMemory returns the largest resident set size that a process had.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	status := must.ReadFile(t, filepath.Join("/proc", strconv.Itoa(pid), "status"))
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Fatal("cannot find VmHWM")
	}
	size, err := strconv.Atoi(string(found[1]))
	must.Succeed(t, err)
	return size << 10
}
