package identity

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Paths are the files of an agent's certificate. The CA file has the certificates of all trusted CAs.
type Paths struct {
	Cert, Key, CA string
}

// Files provides an agent's certificate, its key and the trusted CAs from files. Each handshake uses the current
// content. While changed files are invalid, the previous content remains in use.
type Files struct {
	paths   Paths
	onError func(error)

	loaded atomic.Pointer[loaded]
	// refused is why the last check refused changed files, nil if it didn't.
	refused atomic.Pointer[error]

	// mu is held while the files are checked.
	mu sync.Mutex
}

// loaded is the parsed content of the files, with their metadata when they were read.
type loaded struct {
	cert  *tls.Certificate
	names Names
	cas   *x509.CertPool
	infos [3]os.FileInfo
}

// Open reads the files. Later, it calls onError when changed files are invalid, once
// for each different error. onError may be nil, and must not block.
func Open(paths Paths, onError func(error)) (*Files, error) {
	f := &Files{paths: paths, onError: onError}
	infos, err := f.stat()
	if err != nil {
		return nil, err
	}
	first, err := f.read(infos)
	if err != nil {
		return nil, err
	}
	f.loaded.Store(first)
	return f, nil
}

// Names returns the names in the certificate that was loaded last. It does no I/O.
func (f *Files) Names() Names { return f.loaded.Load().names }

// NotAfter returns the expiry of the certificate that was loaded last. It does no I/O.
func (f *Files) NotAfter() time.Time { return f.loaded.Load().cert.Leaf.NotAfter }

// Expiry returns that the certificate that was loaded last has expired, or that it will when a quarter of its lifetime
// or less is left, or "". It does no I/O.
func (f *Files) Expiry(now time.Time) (problem string, expired bool) {
	cert := f.loaded.Load().cert.Leaf
	at := cert.NotAfter.UTC().Format(time.RFC3339)
	switch left := cert.NotAfter.Sub(now); {
	case left < 0:
		return "certificate expired at " + at, true
	case left <= cert.NotAfter.Sub(cert.NotBefore)/4:
		return "certificate expires at " + at, false
	}
	return "", false
}

// Refused returns why changed files aren't in use, and nil if there are none. It does no I/O.
func (f *Files) Refused() error {
	if err := f.refused.Load(); err != nil {
		return *err
	}
	return nil
}

// Reload reads the files if they have changed. Each handshake does that, too. Unlike a
// handshake, Reload waits for a check in progress, which may have begun before the change.
func (f *Files) Reload() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.check()
}

// current returns the content of the files. While another call checks them, perhaps
// because the disk doesn't respond, it returns the previous content.
func (f *Files) current() *loaded {
	if !f.mu.TryLock() {
		return f.loaded.Load()
	}
	defer f.mu.Unlock()
	return f.check()
}

// check returns the content of the files. It checks for changes, which takes microseconds,
// and reads the files only if there are any. The caller holds the lock.
func (f *Files) check() *loaded {
	before := f.loaded.Load()
	infos, err := f.stat()
	if err == nil && unchanged(infos, before.infos) {
		f.refused.Store(nil)
		return before
	}
	var fresh *loaded
	if err == nil {
		fresh, err = f.read(infos)
	}
	if err == nil {
		f.loaded.Store(fresh)
		f.refused.Store(nil)
		return fresh
	}
	err = fmt.Errorf("cannot load changed certificate files; the previous ones remain in use: %w", err)
	if last := f.Refused(); last == nil || err.Error() != last.Error() {
		f.refused.Store(&err)
		if f.onError != nil {
			f.onError(err)
		}
	}
	return before
}

func (f *Files) stat() ([3]os.FileInfo, error) {
	var infos [3]os.FileInfo
	for i, path := range []string{f.paths.Cert, f.paths.Key, f.paths.CA} {
		var err error
		if infos[i], err = os.Stat(path); err != nil {
			return infos, err
		}
	}
	return infos, nil
}

func unchanged(a, b [3]os.FileInfo) bool {
	for i := range a {
		if !os.SameFile(a[i], b[i]) || a[i].Size() != b[i].Size() || !a[i].ModTime().Equal(b[i].ModTime()) {
			return false
		}
	}
	return true
}

// maxFile has room for hundreds of certificates.
const maxFile = 1 << 20

// read reads the files, whose metadata was infos before. If they change while they
// are read, the next check finds different metadata.
func (f *Files) read(infos [3]os.FileInfo) (*loaded, error) {
	var texts [3][]byte
	for i, path := range []string{f.paths.Cert, f.paths.Key, f.paths.CA} {
		if !infos[i].Mode().IsRegular() || infos[i].Size() > maxFile {
			return nil, fmt.Errorf("%s must be a regular file of at most %d bytes", path, maxFile)
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
	result.infos = infos
	return result, nil
}
