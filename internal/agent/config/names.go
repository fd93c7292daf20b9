package config

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// The maximum lengths of names. The name of a group is part of labels, and the name of a domain is part of host names.
const (
	maxShortName  = 63
	maxMemberName = 253
)

var (
	dnsName   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`)
	allDigits = regexp.MustCompile(`(^|\.)[0-9]+$`)
)

// CheckMemberName returns an error if name isn't a valid name of a member.
func CheckMemberName(name string) error { return checkName(name, maxMemberName) }

// CheckGroupName returns an error if name isn't a valid name of a group or a domain.
func CheckGroupName(name string) error { return checkName(name, maxShortName) }

func checkName(name string, most int) error {
	switch {
	case name == "":
		return errors.New("must be a name such as a or ledger-0, got an empty string")
	case len(name) > most:
		return fmt.Errorf("must have at most %d characters, got %d", most, len(name))
	case !dnsName.MatchString(name):
		return fmt.Errorf("must consist of lower-case letters, digits and -, in parts separated by dots, got %q",
			truncate(name, maxShown))
	}
	return nil
}

// endpoint is a host with a port.
type endpoint struct {
	host string
	port uint16
}

// parseEndpoint parses HOST:PORT.
func parseEndpoint(address string) (endpoint, error) {
	wrong := fmt.Errorf("must be HOST:PORT such as 10.0.0.7:7401 or a.example.org:7401, got %q",
		truncate(address, maxShown))
	colon := strings.LastIndexByte(address, ':')
	if colon < 1 {
		return endpoint{}, wrong
	}
	host, digits := address[:colon], address[colon+1:]
	port, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || port == 0 || strconv.FormatUint(port, 10) != digits {
		return endpoint{}, fmt.Errorf("must end in a port from 1 to 65535, got %q", truncate(digits, maxShown))
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, closed := strings.CutSuffix(inner, "]")
		if ip, err := netip.ParseAddr(inner); !closed || err != nil || !ip.Is6() || ip.Zone() != "" {
			return endpoint{}, wrong
		}
		return endpoint{inner, uint16(port)}, nil
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {
		return endpoint{host, uint16(port)}, nil
	}
	if len(host) > maxMemberName || !dnsName.MatchString(strings.ToLower(host)) || allDigits.MatchString(host) {
		return endpoint{}, wrong
	}
	return endpoint{strings.ToLower(host), uint16(port)}, nil
}

// checkListen checks an address to listen on: that of all addresses, as :PORT, or of one. A name would need a lookup.
func checkListen(address string) error {
	on := address
	if strings.HasPrefix(on, ":") {
		on = "0.0.0.0" + on
	}
	if at, err := netip.ParseAddrPort(on); err != nil || at.Port() == 0 {
		return fmt.Errorf("must be :PORT or IP:PORT such as :18080, got %q", truncate(address, maxShown))
	}
	return nil
}

func checkAddress(address string) error {
	_, err := parseEndpoint(address)
	return err
}

// checkPeerAddress returns an error if peers cannot dial an address.
func checkPeerAddress(address string) error {
	at, err := parseEndpoint(address)
	if err == nil && at.unspecified() {
		return fmt.Errorf("must be an address that peers can dial, got %q", address)
	}
	return err
}

// unspecified reports whether the endpoint means all addresses of the machine.
func (e endpoint) unspecified() bool {
	ip, err := netip.ParseAddr(e.host)
	return err == nil && ip.Unmap().IsUnspecified()
}

// loopback reports whether only processes on this machine can reach the endpoint.
func (e endpoint) loopback() bool {
	ip, err := netip.ParseAddr(e.host)
	return e.host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// overlaps reports whether one machine cannot listen on both endpoints.
func (e endpoint) overlaps(other endpoint) bool {
	return e.port == other.port && (e.host == other.host || e.unspecified() || other.unspecified())
}
