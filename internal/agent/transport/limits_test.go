package transport_test

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestLargestCertificateIsAccepted: that of a member of 100 groups with the longest names.
func TestLargestCertificateIsAccepted(t *testing.T) {
	h := newHarness(t)
	m := h.start("m", "127.0.0.1:0", 1)
	member := strings.Repeat("a", 253)
	m.SetPeers(map[string]string{member: "127.0.0.1:1"})
	var names identity.Names
	for i := range 100 {
		group := fmt.Sprintf("%s%02d", strings.Repeat("g", 61), i)
		names = append(names, identity.Name{Domain: "default", Group: group, Member: member})
	}
	s := dial(t, "127.0.0.1", m.address).startTLS(h.issue(validity, names...))
	s.t = t
	s.writeFrames(hello(member, 9))
	m.waitConnected(member)
}

// TestLargerCertificateIsRejectedEarly: package tls would read 250 KB.
func TestLargerCertificateIsRejectedEarly(t *testing.T) {
	h := newHarness(t)
	m := h.start("m", "127.0.0.1:0", 1)
	own := h.issue(validity, name("a"))
	own.Certificate = append(own.Certificate, make([]byte, 250_000))
	client := tls.Client(dial(t, "127.0.0.1", m.address).Conn, &tls.Config{
		InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil },
	})
	_ = client.HandshakeContext(t.Context()) // It may fail or, with TLS 1.3, not know yet.
	testwait.Until(t, "m rejects the connection", func() bool { return m.log.Count("too many bytes before it was authenticated") > 0 })
}
