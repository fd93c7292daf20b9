package pod

import (
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/filewatch"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// mounts are the documents and authorities that kubelet puts into the pod, and
// replaces all at once by a link in their folder. They may be a minute behind what
// the operator says.
type mounts struct {
	folder      string
	groups      []string
	registrar   *registrar
	credentials *credentials
	// news is called when something may have changed, the token for one.
	news func()
	log  *slog.Logger

	seen map[string][sha256.Size]byte
}

// watch looks whenever something has changed, until ctx ends. Only then is there
// news: who was refused a certificate mustn't ask all the time.
func (m *mounts) watch(ctx context.Context) {
	filewatch.Watch(ctx, m.folder, m.log, func(happened bool) bool {
		m.look()
		if happened {
			m.news()
		}
		return true
	})
}

// look takes note of what is there now. What is missing changes nothing.
func (m *mounts) look() {
	var authorities []byte
	for _, group := range m.groups {
		if text := m.read(filepath.Join(m.folder, group, control.CABundleKey)); text != nil {
			authorities = append(authorities, text...)
		}
		path := filepath.Join(m.folder, group, control.DocumentKey)
		text := m.read(path)
		if text == nil || !m.fresh(path, text) {
			continue
		}
		_, err := m.registrar.offer(path, group, text)
		if err != nil && !errors.Is(err, api.ErrOutdated) { // The operator may be faster than a mount.
			m.registrar.note(path, group, err)
		}
	}
	if len(authorities) == 0 {
		return
	}
	if err := m.credentials.mount(authorities); err != nil {
		m.log.Error("doesn't trust the authorities that are mounted", "error", err)
	}
}

func (m *mounts) fresh(path string, text []byte) bool {
	sum := sha256.Sum256(text)
	if m.seen[path] == sum {
		return false
	}
	m.seen[path] = sum
	return true
}

// read is what is in a file, nil if there is nothing to go by.
func (m *mounts) read(path string) []byte {
	info, err := os.Stat(path)
	if err == nil && (info.Size() > config.MaxFile || !info.Mode().IsRegular()) {
		err = errors.New("it is no file of a size that makes sense")
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.log.Error("can't read what is mounted", "path", path, "error", err)
	}
	return text
}
