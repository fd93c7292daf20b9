package identity

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Paths are the files of an agent's certificate. CA holds one certificate or
// more, of all authorities whose word counts.
type Paths struct {
	Cert, Key, CA string
}

// Files are an agent's certificate, its key and its authorities, as they are on
// the disk. Changed files count from the next handshake on; until they are in
// order again, those that were do.
type Files struct {
	paths   Paths
	trouble func(error)

	mu     sync.Mutex
	loaded *loaded
	told   string
}

// loaded is what the files said, and what they looked like then.
type loaded struct {
	cert        *tls.Certificate
	names       Names
	authorities *x509.CertPool
	looks       [3]os.FileInfo
}

// Open reads the files. Later, trouble is told when changed files aren't in
// order: once, until they say something else. It may be nil, and mustn't block.
func Open(paths Paths, trouble func(error)) (*Files, error) {
	f := &Files{paths: paths, trouble: trouble}
	looks, err := f.look()
	if err != nil {
		return nil, err
	}
	if f.loaded, err = f.read(looks); err != nil {
		return nil, err
	}
	return f, nil
}

// Names are those that the certificate gives us now.
func (f *Files) Names() Names { return f.current().names }

// NotAfter is when the certificate expires.
func (f *Files) NotAfter() time.Time { return f.current().cert.Leaf.NotAfter }

// current looks at the files, which costs microseconds, and reads them if they
// have changed.
func (f *Files) current() *loaded {
	f.mu.Lock()
	defer f.mu.Unlock()
	looks, err := f.look()
	if err == nil && alike(looks, f.loaded.looks) {
		f.told = ""
		return f.loaded
	}
	var fresh *loaded
	if err == nil {
		fresh, err = f.read(looks)
	}
	switch {
	case err == nil:
		f.loaded, f.told = fresh, ""
	case err.Error() != f.told:
		f.told = err.Error()
		if f.trouble != nil {
			f.trouble(fmt.Errorf("the certificate files have changed, and the former ones stay in use: %w", err))
		}
	}
	return f.loaded
}

func (f *Files) look() ([3]os.FileInfo, error) {
	var looks [3]os.FileInfo
	for i, path := range []string{f.paths.Cert, f.paths.Key, f.paths.CA} {
		var err error
		if looks[i], err = os.Stat(path); err != nil {
			return looks, err
		}
	}
	return looks, nil
}

func alike(a, b [3]os.FileInfo) bool {
	for i := range a {
		if !os.SameFile(a[i], b[i]) || a[i].Size() != b[i].Size() || !a[i].ModTime().Equal(b[i].ModTime()) {
			return false
		}
	}
	return true
}

// read reads the files that look so: if they change meanwhile, they won't when
// they are looked at next.
func (f *Files) read(looks [3]os.FileInfo) (*loaded, error) {
	var texts [3][]byte
	for i, path := range []string{f.paths.Cert, f.paths.Key, f.paths.CA} {
		if !looks[i].Mode().IsRegular() || looks[i].Size() > maxFile {
			return nil, fmt.Errorf("%s is no file of %d bytes at most", path, maxFile)
		}
		var err error
		if texts[i], err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	result, err := parse(f.paths, texts)
	if err != nil {
		return nil, err
	}
	result.looks = looks
	return result, nil
}

// parse understands what is in files of these names.
func parse(paths Paths, texts [3][]byte) (*loaded, error) {
	cert, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", paths.Cert, paths.Key, err)
	}
	authorities, err := parseAuthorities(texts[2])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", paths.CA, err)
	}
	var names Names
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		if names, err = verified(chainOf(&cert), authorities, use); err != nil {
			return nil, fmt.Errorf("%s with %s: %w", paths.Cert, paths.CA, err)
		}
	}
	return &loaded{cert: &cert, names: names, authorities: authorities}, nil
}

// memory is what is called what is in no file.
var memory = Paths{"the certificate", "its key", "the authorities"}

// Verify says whom a certificate is for, if it is valid now, has this key, and is of
// one of the authorities.
func Verify(pair Pair, authorities []byte) (Names, error) {
	result, err := parse(memory, [3][]byte{pair.Cert, pair.Key, authorities})
	if err != nil {
		return nil, err
	}
	return result.names, nil
}

// ParseCABundle are the certificates of authorities in a PEM text, one by one. It must
// hold one at least, and nothing else.
func ParseCABundle(text []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			// Half a certificate is what is left of a file that is being written.
			if len(all) == 0 || bytes.Contains(rest, []byte("-----BEGIN")) {
				return nil, errors.New("it must hold the certificates of authorities, in PEM")
			}
			return all, nil
		}
		if block.Type != certificateBlock {
			return nil, fmt.Errorf("it must hold certificates of authorities, and no %s", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("an authority's certificate: %w", err)
		}
		if !cert.IsCA {
			return nil, fmt.Errorf("the certificate of %q in it is no authority's", cert.Subject)
		}
		all = append(all, cert)
	}
}

// maxFile is room for hundreds of certificates.
const maxFile = 1 << 20

func parseAuthorities(text []byte) (*x509.CertPool, error) {
	all, err := ParseCABundle(text)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, cert := range all {
		pool.AddCert(cert)
	}
	return pool, nil
}

func chainOf(cert *tls.Certificate) []*x509.Certificate {
	chain := []*x509.Certificate{cert.Leaf}
	for _, der := range cert.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			chain = append(chain, c)
		}
	}
	return chain
}
