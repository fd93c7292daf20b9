package config

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// The longest names. A group's is a part of labels, and a domain's of host names.
const (
	maxShortName  = 63
	maxMemberName = 253
)

var (
	dnsName   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`)
	allDigits = regexp.MustCompile(`(^|\.)[0-9]+$`)
)

// CheckMember says what is wrong with the name of a member.
func CheckMember(name string) error { return checkName(name, maxMemberName) }

// CheckGroup says what is wrong with the name of a group or a domain.
func CheckGroup(name string) error { return checkName(name, maxShortName) }

func checkName(name string, most int) error {
	switch {
	case name == "":
		return errors.New("must be a name such as a or ledger-0, not nothing")
	case len(name) > most:
		return fmt.Errorf("must be a name of %d characters at most, not of %d", most, len(name))
	case !dnsName.MatchString(name):
		return fmt.Errorf("must be lower-case letters, digits and - with dots between such words, not %q", truncate(name))
	}
	return nil
}

// endpoint is an address in its two parts.
type endpoint struct {
	host string
	port uint16
}

// parseEndpoint takes a host:port apart.
func parseEndpoint(address string) (endpoint, error) {
	wrong := fmt.Errorf("must be HOST:PORT such as 10.0.0.7:7401 or a.example.org:7401, not %q", truncate(address))
	colon := strings.LastIndexByte(address, ':')
	if colon < 1 {
		return endpoint{}, wrong
	}
	host, digits := address[:colon], address[colon+1:]
	port, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || port == 0 || strconv.FormatUint(port, 10) != digits {
		return endpoint{}, fmt.Errorf("must end in a port from 1 to 65535, not %q", truncate(digits))
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

func checkAddress(address string) error {
	_, err := parseEndpoint(address)
	return err
}

// checkPeerAddress says what is wrong with an address that peers dial.
func checkPeerAddress(address string) error {
	at, err := parseEndpoint(address)
	if err == nil && at.unspecified() {
		return fmt.Errorf("must be an address that others can dial, not %q", address)
	}
	return err
}

// everywhere: all addresses of the machine.
func (e endpoint) unspecified() bool {
	ip, err := netip.ParseAddr(e.host)
	return err == nil && ip.Unmap().IsUnspecified()
}

// local: nobody on another machine gets there.
func (e endpoint) loopback() bool {
	ip, err := netip.ParseAddr(e.host)
	return e.host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// meets: both can't be listened on.
func (e endpoint) overlaps(other endpoint) bool {
	return e.port == other.port && (e.host == other.host || e.unspecified() || other.unspecified())
}
