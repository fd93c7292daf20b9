package identity_test

import (
	"crypto/x509"
	"net/url"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

func TestParseName(t *testing.T) {
	for _, text := range []string{
		"conclave://default/ledger/a",
		"conclave://bank-1/ledger.v2/ledger-0.bank.svc",
	} {
		name, err := identity.ParseName(text)
		if err != nil || name.String() != text {
			t.Errorf("%s became %v, %v", text, name, err)
		}
	}
}

func TestOnlyPlainNamesAreNames(t *testing.T) {
	const plain, form = "it must have no user, query, fragment or escapes", "it must be conclave://DOMAIN/GROUP/MEMBER"
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
		"CONCLAVE://default/ledger/a":       "it isn't written plainly",
		"conclave://default/ledger/a?":      plain,
		"conclave://default/ledger/a?b":     plain,
		"conclave://default/ledger/a#b":     plain,
		"conclave://default/ledger/a#":      "it isn't written plainly",
		"conclave://me@default/ledger/a":    plain,
		"conclave://default/ledger/%61":     plain,
		"conclave://default/ledger%2Fa/b":   form,
		"conclave://default:80/ledger/a":    "the domain may have a-z, 0-9, - and . in it",
		"conclave://[::1]/ledger/a":         "the domain may have a-z, 0-9, - and . in it",
		"conclave://Default/ledger/a":       "the domain may have a-z, 0-9, - and . in it",
		"conclave://default/Ledger/a":       "the group may have a-z, 0-9, - and . in it",
		"conclave://default/ledger/a b":     plain,
		"conclave://default/ledger/é":       plain,
		"conclave://default/ledger/a\x00b":  form,
		"conclave://default/ledger/a,b":     "the member may have a-z, 0-9, - and . in it",
		"conclave://def%61ult/ledger/a":     form,
		strings.Repeat("conclave://a/", 99): form,
	} {
		name, err := identity.ParseName(text)
		if err == nil || !strings.HasSuffix(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("%q became %v, %v; want %s", text, name, err, want)
		}
	}
}

func TestNamesOfACertificate(t *testing.T) {
	uris := func(texts ...string) *x509.Certificate {
		cert := &x509.Certificate{}
		for _, text := range texts {
			u, err := url.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
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
		t.Errorf("%v has the wrong ones", names)
	}
	for want, cert := range map[string]*x509.Certificate{
		"it names no member: it needs a URI conclave://DOMAIN/GROUP/MEMBER":                                        uris(),
		`"spiffe://x/y/z" is no name of a member: it must be conclave://DOMAIN/GROUP/MEMBER`:                       uris(a, "spiffe://x/y/z"),
		"it names two members of one group, conclave://default/ledger/a and conclave://default/ledger/b":           uris(a, "conclave://default/ledger/b"),
		"it names two members of one group, conclave://default/ledger/a and " + a:                                  uris(a, a),
		"it names 101 members: 100 at most are possible":                                                           uris(strings.Fields(strings.Repeat(a+" ", 101))...),
		`"conclave://default/ledger/a?b" is no name of a member: it must have no user, query, fragment or escapes`: uris(a + "?b"),
	} {
		if names, err := identity.NamesOf(cert); err == nil || err.Error() != want {
			t.Errorf("got %v, %v; want %s", names, err, want)
		}
	}
}

func FuzzParseName(f *testing.F) {
	f.Add("conclave://default/ledger/a")
	f.Fuzz(func(t *testing.T, text string) {
		if name, err := identity.ParseName(text); err == nil && name.String() != text {
			t.Errorf("%q became %q", text, name)
		}
	})
}
