package report

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"
)

// removed replaces credentials.
const removed = "[removed]"

// credentials are private keys, JSON web tokens, and what follows a word such as "password". The word "token" isn't one
// of them: logs have fencing tokens.
var credentials = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----` +
	`|\beyJ[\w-]+\.[\w-]+\.[\w-]*` + `|(?i:\b(?:bearer|basic)\s+[\w.~+/=-]{8,})` +
	`|(?i:(?:password|passwd|secret|api[_-]?key)["']?\s*[:=]\s*["']?[^\s"',]+)`)

// archive is a compressed tar file that is written as its files are found.
type archive struct {
	folder string
	now    time.Time
	zip    *gzip.Writer

	mutex   sync.Mutex // guards what follows
	tar     *tar.Writer
	files   int
	missing []string
	failed  error
}

func newArchive(to io.Writer, folder string, now time.Time) *archive {
	zip := gzip.NewWriter(to)
	return &archive{folder: folder, now: now, zip: zip, tar: tar.NewWriter(zip)}
}

// add adds a file, without credentials, or says that it is missing.
func (a *archive) add(name string, get func() ([]byte, error)) {
	content, err := get()
	if err != nil {
		a.miss(name, err)
		return
	}
	content = credentials.ReplaceAllLiteral(content, []byte(removed))
	a.mutex.Lock()
	defer a.mutex.Unlock()
	header := &tar.Header{Name: a.folder + "/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: a.now}
	if a.failed == nil {
		a.failed = a.tar.WriteHeader(header)
	}
	if a.failed == nil {
		_, a.failed = a.tar.Write(content)
	}
	a.files++
}

// addObject adds a file in YAML.
func (a *archive) addObject(name string, get func() (any, error)) {
	a.add(name, func() ([]byte, error) {
		object, err := get()
		if err != nil {
			return nil, err
		}
		return yaml.Marshal(object)
	})
}

func (a *archive) miss(name string, err error) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.missing = append(a.missing, fmt.Sprintf("%s: %s", name, strings.TrimSpace(err.Error())))
}

// close adds README.txt, and completes the archive.
func (a *archive) close(about string) error {
	a.add("README.txt", func() ([]byte, error) {
		for _, m := range a.missing {
			about += "\nMissing: " + m
		}
		return []byte(about + "\n"), nil
	})
	for _, closer := range []io.Closer{a.tar, a.zip} {
		if err := closer.Close(); a.failed == nil {
			a.failed = err
		}
	}
	return a.failed
}
