package transport

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/expect"
)

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
	if at := closeBefore(-time.Second); at > 0 {
		t.Errorf("got %s for an expired certificate, want no delay", at)
	}
}
