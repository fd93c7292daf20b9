package proxy

import (
	"encoding/binary"
	"net"
	"net/netip"
)

// header returns the header of the PROXY protocol, version 2, for a client: where it connects from, and to.
func header(client *net.TCPConn) []byte {
	const version2, proxied, tcp4, tcp6 = 0x20, 0x01, 0x11, 0x21
	from, to := endOf(client.RemoteAddr()), endOf(client.LocalAddr())
	family := byte(tcp4)
	if from.Addr().Is6() {
		family = tcp6
	}
	addresses := append(from.Addr().AsSlice(), to.Addr().AsSlice()...)
	b := append([]byte("\r\n\r\n\x00\r\nQUIT\n"), version2|proxied, family)
	b = binary.BigEndian.AppendUint16(b, uint16(len(addresses)+4)) //nolint:gosec // at most 36
	b = append(b, addresses...)
	b = binary.BigEndian.AppendUint16(b, from.Port())
	return binary.BigEndian.AppendUint16(b, to.Port())
}

// endOf returns an end of a connection. Both ends have the same family, also if an IPv6 socket carries IPv4.
func endOf(address net.Addr) netip.AddrPort {
	of := address.(*net.TCPAddr).AddrPort() //nolint:errcheck,forcetypeassert // Network "tcp" has no other.
	return netip.AddrPortFrom(of.Addr().Unmap().WithZone(""), of.Port())
}
