package identity_test

import (
	"crypto/x509"
	"net/url"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestNamesOfACertificate(t *testing.T) {
	uris := func(texts ...string) *x509.Certificate {
		cert := &x509.Certificate{}
		for _, text := range texts {
			u, err := url.Parse(text)
			must.Succeed(t, err)
			cert.URIs = append(cert.URIs, u)
		}
		return cert
	}
	const a, b = "conclave://default/ledger/a", "conclave://default/audit/a"
	names, err := identity.NamesOf(uris(a, b))
	if err != nil || names.String() != a+", "+b {
		t.Errorf("got %v, %v", names, err)
	}
	if !names.Has(identity.Name{Domain: "default", Group: "audit", Member: "a"}) || names.Has(identity.Name{Domain: "default", Group: "audit", Member: "b"}) {
		t.Errorf("got names %v, want %s and %s", names, a, b)
	}
	for want, cert := range map[string]*x509.Certificate{
		"must have a URI conclave://DOMAIN/GROUP/MEMBER":                                                                          uris(),
		`must have only member names as URIs, got "spiffe://x/y/z": must be conclave://DOMAIN/GROUP/MEMBER`:                       uris(a, "spiffe://x/y/z"),
		"must name one member of each group, got conclave://default/ledger/a and conclave://default/ledger/b":                     uris(a, "conclave://default/ledger/b"),
		"must name one member of each group, got conclave://default/ledger/a and " + a:                                            uris(a, a),
		"must name at most 100 members, got 101":                                                                                  uris(strings.Fields(strings.Repeat(a+" ", 101))...),
		`must have only member names as URIs, got "conclave://default/ledger/a?b": must have no user, query, fragment or escapes`: uris(a + "?b"),
	} {
		if names, err := identity.NamesOf(cert); err == nil || err.Error() != want {
			t.Errorf("got %v, %v; want %s", names, err, want)
		}
	}
}

// TestOtherFormsOfANameAreRejected: equivalent forms of a URI would be several names of one member.
func TestOtherFormsOfANameAreRejected(t *testing.T) {
	const plain, form = "must have no user, query, fragment or escapes", "must be conclave://DOMAIN/GROUP/MEMBER"
	for text, want := range map[string]string{
		"":                                  form,
		"spiffe://default/ledger/a":         form,
		"conclave:default/ledger/a":         form,
		"conclave://default/ledger":         form,
		"conclave://default/ledger/a/b":     form,
		"conclave://default/ledger/a/":      form,
		"conclave://default//a":             "the group is empty",
		"conclave://default/ledger/":        "the member is empty",
		"conclave:///ledger/a":              "the domain is empty",
		"conclave://default/ledger/a?":      plain,
		"conclave://default/ledger/a?b":     plain,
		"conclave://default/ledger/a#b":     plain,
		"conclave://me@default/ledger/a":    plain,
		"conclave://default/ledger/%61":     plain,
		"conclave://default/ledger%2Fa/b":   form,
		"conclave://default:80/ledger/a":    "the domain must consist of a-z, 0-9, hyphens and dots",
		"conclave://[::1]/ledger/a":         "the domain must consist of a-z, 0-9, hyphens and dots",
		"conclave://Default/ledger/a":       "the domain must consist of a-z, 0-9, hyphens and dots",
		"conclave://default/Ledger/a":       "the group must consist of a-z, 0-9, hyphens and dots",
		"conclave://default/ledger/a b":     plain,
		"conclave://default/ledger/é":       plain,
		"conclave://default/ledger/a,b":     "the member must consist of a-z, 0-9, hyphens and dots",
		strings.Repeat("conclave://a/", 99): form,
	} {
		u, err := url.Parse(text)
		must.Succeed(t, err)
		names, err := identity.NamesOf(&x509.Certificate{URIs: []*url.URL{u}})
		if err == nil || !strings.HasSuffix(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("%q: got %v, %v, want %s", text, names, err, want)
		}
	}
}
