// Package identity is what a certificate says: for exactly which member of which
// groups its holder may speak.
//
// Each of these names is a URI among the certificate's alternative names,
// conclave://DOMAIN/GROUP/MEMBER. Host names and addresses play no part: agents
// move.
package identity

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Scheme is that of the URIs in certificates.
const Scheme = "conclave"

// maxNames bounds what a peer can have us read. An agent is in 100 groups at most.
const maxNames = 100

// Name is one member of one group. The domain keeps apart groups of the same
// name under the same authority.
type Name struct {
	Domain, Group, Member string
}

func (n Name) String() string { return n.url().String() }

func (n Name) url() *url.URL {
	return &url.URL{Scheme: Scheme, Host: n.Domain, Path: "/" + n.Group + "/" + n.Member}
}

// check wants parts that stand in a URI as they are.
func (n Name) check() error {
	for _, part := range []struct{ what, text string }{{"domain", n.Domain}, {"group", n.Group}, {"member", n.Member}} {
		switch {
		case part.text == "":
			return fmt.Errorf("the %s is empty", part.what)
		case strings.Trim(part.text, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "":
			return fmt.Errorf("the %s may have a-z, 0-9, - and . in it", part.what)
		}
	}
	return nil
}

// ParseName understands conclave://DOMAIN/GROUP/MEMBER, and nothing that only
// comes down to it.
func ParseName(text string) (Name, error) {
	u, err := url.Parse(text)
	if err != nil {
		return Name{}, fmt.Errorf("%.100q is no name of a member: it must be %s://DOMAIN/GROUP/MEMBER", text, Scheme)
	}
	name, err := nameOf(u)
	if err == nil && name.String() != text {
		err = errors.New("it isn't written plainly")
	}
	if err != nil {
		return Name{}, fmt.Errorf("%.100q is no name of a member: %w", text, err)
	}
	return name, nil
}

func nameOf(u *url.URL) (Name, error) {
	parts := strings.Split(u.Path, "/")
	if u.Scheme != Scheme || len(parts) != 3 || parts[0] != "" {
		return Name{}, fmt.Errorf("it must be %s://DOMAIN/GROUP/MEMBER", Scheme)
	}
	if u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.RawPath != "" || u.Opaque != "" {
		return Name{}, errors.New("it must have no user, query, fragment or escapes")
	}
	name := Name{Domain: u.Host, Group: parts[1], Member: parts[2]}
	return name, name.check()
}

// Names are all that a certificate's holder may speak for.
type Names []Name

// Has reports whether name is among them.
func (n Names) Has(name Name) bool { return slices.Contains(n, name) }

// Intersects reports whether one of them is among the others.
func (n Names) Intersects(others Names) bool { return slices.ContainsFunc(n, others.Has) }

func (n Names) String() string {
	text := make([]string, len(n))
	for i, name := range n {
		text[i] = name.String()
	}
	return strings.Join(text, ", ")
}

// check wants one member at most for each group: an agent is one process.
func (n Names) check() error {
	if len(n) == 0 {
		return fmt.Errorf("it names no member: it needs a URI %s://DOMAIN/GROUP/MEMBER", Scheme)
	}
	if len(n) > maxNames {
		return fmt.Errorf("it names %d members: %d at most are possible", len(n), maxNames)
	}
	groups := map[Name]Name{}
	for _, name := range n {
		group := Name{Domain: name.Domain, Group: name.Group}
		if first, ok := groups[group]; ok {
			return fmt.Errorf("it names two members of one group, %s and %s", first, name)
		}
		groups[group] = name
	}
	return nil
}

// NamesOf are the names in a certificate. One that is wrong spoils all: whoever
// signed it didn't mean what we would read.
func NamesOf(cert *x509.Certificate) (Names, error) {
	var names Names
	for _, u := range cert.URIs {
		name, err := nameOf(u)
		if err != nil {
			return nil, fmt.Errorf("%.100q is no name of a member: %w", u, err)
		}
		names = append(names, name)
	}
	return names, names.check()
}
