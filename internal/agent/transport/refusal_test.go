package transport

import (
	"errors"
	"net"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestRefusalWithoutRecordOfICMP: if the kernel can't tell why a dial was refused, the refusal isn't
// evidence that the process has ended. A socket without IP stands for such a kernel.
func TestRefusalWithoutRecordOfICMP(t *testing.T) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "socket"), Net: "unix"})
	must.Succeed(t, err)
	defer listener.Close()
	raw, err := listener.SyscallConn()
	must.Succeed(t, err)
	var known, unknown refusal
	_ = unknown.watch(t.Context(), "tcp4", "", raw) // The socket hasn't the options of TCP either.
	if err := unknown.explain(syscall.ECONNREFUSED); !errors.Is(err, errRejected) || errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v, want no evidence", err)
	}
	expect.Succeedf(t, unknown.explain(nil), "explanation of a connection")
	expect.ErrorIsf(t, known.explain(syscall.ECONNREFUSED), syscall.ECONNREFUSED, "the refusal")
}

func TestRefuses(t *testing.T) {
	for _, ip := range []string{"127.0.0.1", "::1"} {
		t.Run(ip, func(t *testing.T) {
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(ip, "0"))
			if err != nil {
				need.Skip(t, "the address "+ip)
			}
			address := listener.Addr().String()
			expect.Equalf(t, Refuses(listener, address, testwait.Limit), false, "%s refuses", address)
			must.Succeed(t, listener.Close())
			expect.Equalf(t, Refuses(listener, address, testwait.Limit), true, "%s refuses", address)
		})
	}
}

// TestRefusalThatTakesLonger: a listener with a full queue doesn't answer, as a machine far away. When it is closed,
// the kernel refuses the next attempt, which it makes after a second.
func TestRefusalThatTakesLonger(t *testing.T) {
	t.Parallel()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must.Succeed(t, err)
	must.Succeed(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must.Succeed(t, unix.Listen(fd, 0))
	bound, err := unix.Getsockname(fd)
	must.Succeed(t, err)
	port := bound.(*unix.SockaddrInet4).Port //nolint:errcheck,forcetypeassert // It is one.
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	own, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer own.Close()
	filling, err := net.Dial("tcp", address)
	must.Succeed(t, err)
	defer filling.Close()
	expect.Equalf(t, Refuses(own, address, 10*time.Millisecond), false, "refuses without an answer")
	refused := make(chan bool)
	go func() { refused <- Refuses(own, address, testwait.Limit) }()
	// It need not be enough: the kernel refuses an attempt after the end of the listener, too.
	time.Sleep(100 * time.Millisecond)
	must.Succeed(t, unix.Close(fd))
	expect.Equalf(t, <-refused, true, "refuses after the end of the listener")
}

// TestOnlyRefusedDialIsEvidence: the kernel reports ECONNREFUSED also for an established connection,
// if an ICMP message of a firewall arrived.
func TestOnlyRefusedDialIsEvidence(t *testing.T) {
	address := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7373}
	for operation, want := range map[string]dialResult{"dial": refused, "read": noAnswer, "write": noAnswer} {
		err := &net.OpError{Op: operation, Net: "tcp", Addr: address, Err: syscall.ECONNREFUSED}
		expect.Equalf(t, resultOf(err, address.String()), want, "%s", operation)
	}
}

// TestConnectionsDontCloseTogether: certificates of a coordinator's connections expire at the same moment.
func TestConnectionsDontCloseTogether(t *testing.T) {
	const validity = 16 * time.Hour
	moments := map[time.Duration]bool{}
	for range 100 {
		at := closeBefore(validity)
		if at <= validity*7/8 || at > validity {
			t.Errorf("got %s, want it in the last eighth of %s", at, validity)
		}
		moments[at] = true
	}
	if len(moments) < 90 {
		t.Errorf("got %d moments for 100 connections, want them to differ", len(moments))
	}
	expect.AtMostf(t, closeBefore(-time.Second), 0, "delay for an expired certificate")
}

// TestReplacementsOfConnectionsBecomeRare: a peer sends messages for a group that its
// certificate never names, and each connection is replaced as soon as that is due.
func TestReplacementsOfConnectionsBecomeRare(t *testing.T) {
	r := renewals{longest: time.Minute}
	replaced := func(ages ...time.Duration) (due []time.Duration) {
		for _, age := range ages {
			if r.isDue("b", age) {
				due = append(due, age)
			}
		}
		return due
	}
	s := time.Second
	got := replaced(time.Hour, s, 2*s, 3*s, 4*s, 5*s, 9*s, 17*s, 33*s, 60*s, 61*s, 61*s)
	expect.EqualSlicesf(t, got, []time.Duration{time.Hour, 3 * s, 5 * s, 9 * s, 17 * s, 33 * s, 61 * s, 61 * s},
		"connections replaced at the ages")
	expect.Equalf(t, r.isDue("c", 2*s), true, "another peer: a replacement is due after two seconds")
	if r.isDue("b", 2*s) || !r.isDue("b", 121*s) || !r.isDue("b", 3*s) {
		t.Error("after two minutes without a problem: want the first wait again")
	}
	r.forget("b")
	expect.Equalf(t, r.isDue("b", 2*s), true,
		"a peer that has left and joined again: a replacement is due after the first wait")
}
