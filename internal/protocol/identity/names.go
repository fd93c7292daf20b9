// Package identity defines the certificates of agents, and the TLS configurations that use them.
//
// A certificate states of which groups its holder is a member, and under which
// name. Each such Name is a URI among the subject alternative names:
//
//	conclave://DOMAIN/GROUP/MEMBER
//
// The domain separates groups of the same name whose agents trust the same CA. In Kubernetes it is the namespace. Host
// names and addresses aren't verified, because pods change theirs.
//
// The certificate of an agent in a pod also has the UID of the pod, as the serial number
// of its subject. It distinguishes the pod from others of the same name.
//
// CA creates certificates. Files and InMemory provide them for handshakes; both can replace them while connections are
// open. The package starts no goroutines: Files checks its files at each handshake.
//
// # What is not guaranteed
//
// Certificates are verified in the handshake only. To close a connection when its
// certificate expires is up to the caller. There is no revocation: a stolen
// certificate is valid until it expires, or until its CA is removed from the bundle.
package identity

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Scheme is the scheme of the URIs in certificates.
const Scheme = "conclave"

// maxNames bounds the names in a peer's certificate. An agent is a member of at most 100 groups.
const maxNames = 100

// Name names one member of one group.
type Name struct {
	Domain, Group, Member string
}

func (n Name) String() string { return n.url().String() }

func (n Name) url() *url.URL {
	return &url.URL{Scheme: Scheme, Host: n.Domain, Path: "/" + n.Group + "/" + n.Member}
}

// check verifies that all parts are set, and need no escapes in a URI.
func (n Name) check() error {
	for _, part := range []struct{ what, text string }{{"domain", n.Domain}, {"group", n.Group}, {"member", n.Member}} {
		switch {
		case part.text == "":
			return fmt.Errorf("the %s is empty", part.what)
		case strings.Trim(part.text, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "":
			return fmt.Errorf("the %s must consist of a-z, 0-9, hyphens and dots", part.what)
		}
	}
	return nil
}

func nameOf(u *url.URL) (Name, error) {
	parts := strings.Split(u.Path, "/")
	if u.Scheme != Scheme || len(parts) != 3 || parts[0] != "" {
		return Name{}, fmt.Errorf("must be %s://DOMAIN/GROUP/MEMBER", Scheme)
	}
	if u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.RawPath != "" || u.Opaque != "" {
		return Name{}, errors.New("must have no user, query, fragment or escapes")
	}
	name := Name{Domain: u.Host, Group: parts[1], Member: parts[2]}
	return name, name.check()
}

// Names are the names in a certificate.
type Names []Name

// Has reports whether n contains name.
func (n Names) Has(name Name) bool { return slices.Contains(n, name) }

// Intersects reports whether n and others have a name in common.
func (n Names) Intersects(others Names) bool { return slices.ContainsFunc(n, others.Has) }

func (n Names) String() string {
	text := make([]string, len(n))
	for i, name := range n {
		text[i] = name.String()
	}
	return strings.Join(text, ", ")
}

// check verifies that there is at least one name, and at most one for each group: an agent is one process.
func (n Names) check() error {
	if len(n) == 0 {
		return fmt.Errorf("must have a URI %s://DOMAIN/GROUP/MEMBER", Scheme)
	}
	if len(n) > maxNames {
		return fmt.Errorf("must name at most %d members, got %d", maxNames, len(n))
	}
	groups := map[Name]Name{}
	for _, name := range n {
		group := Name{Domain: name.Domain, Group: name.Group}
		if first, ok := groups[group]; ok {
			return fmt.Errorf("must name one member of each group, got %s and %s", first, name)
		}
		groups[group] = name
	}
	return nil
}

// NamesOf returns the names in a certificate. A single invalid URI makes the whole
// certificate invalid, because its signer followed other rules.
func NamesOf(cert *x509.Certificate) (Names, error) {
	var names Names
	for _, u := range cert.URIs {
		name, err := nameOf(u)
		if err != nil {
			return nil, fmt.Errorf("must have only member names as URIs, got %.100q: %w", u, err)
		}
		names = append(names, name)
	}
	return names, names.check()
}
