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
	dir          string
	groups       []string
	groupManager *groupManager
	credentials  *credentials
	// news is called when something may have changed, the token for one.
	onChange func()
	log      *slog.Logger

	checksums map[string][sha256.Size]byte
}

// watch looks whenever something has changed, until ctx ends. Only then is there
// news: who was refused a certificate mustn't ask all the time.
func (m *mounts) watch(ctx context.Context) {
	filewatch.Watch(ctx, m.dir, m.log, func(happened bool) bool {
		m.reload()
		if happened {
			m.onChange()
		}
		return true
	})
}

// look takes note of what is there now. What is missing changes nothing.
func (m *mounts) reload() {
	var authorities []byte
	for _, group := range m.groups {
		if text := m.read(filepath.Join(m.dir, group, control.CABundleKey)); text != nil {
			authorities = append(authorities, text...)
		}
		path := filepath.Join(m.dir, group, control.DocumentKey)
		text := m.read(path)
		if text == nil || !m.changed(path, text) {
			continue
		}
		_, err := m.groupManager.acceptDocument(path, group, text)
		if err != nil && !errors.Is(err, api.ErrOutdated) { // The operator may be faster than a mount.
			m.groupManager.addProblem(path, group, err)
		}
	}
	if len(authorities) == 0 {
		return
	}
	if err := m.credentials.setMountedCAs(authorities); err != nil {
		m.log.Error("doesn't trust the authorities that are mounted", "error", err)
	}
}

func (m *mounts) changed(path string, text []byte) bool {
	sum := sha256.Sum256(text)
	if m.checksums[path] == sum {
		return false
	}
	m.checksums[path] = sum
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
