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
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// mountedFiles reads the documents and CA bundles that kubelet mounts into the pod.
// kubelet replaces all files at once, by a symbolic link in their directory. The files
// may be older than the documents that the operator pushes by a minute.
type mountedFiles struct {
	dir    string
	groups []string
	// groupsFile has the groups, if it isn't empty. onGroups receives them.
	groupsFile  string
	onGroups    func(groups []string)
	manager     *groupManager
	credentials *credentials
	// onChange is called when a file may have changed, for example the token.
	onChange func()
	log      *slog.Logger

	checksums map[string][sha256.Size]byte
	// logged has the errors of files that were logged, by message and path.
	logged map[[2]string]string
}

// watch reads the files whenever the directory changes, until ctx ends. It calls
// onChange only for an actual change, so that an agent whose enrollment is refused
// doesn't retry at each poll.
func (m *mountedFiles) watch(ctx context.Context) {
	everything := func(string) bool { return true }
	filewatch.Watch(ctx, m.dir, everything, m.log, func(happened bool) bool {
		ok := m.read()
		if happened {
			m.onChange()
		}
		return ok
	})
}

// read reads all files and handles those that are new. A missing file changes nothing. If
// read returns false, it must be called again.
func (m *mountedFiles) read() (ok bool) {
	m.readGroups()
	var caBundle []byte
	for _, group := range m.groups {
		caBundle = append(caBundle, m.readCABundle(filepath.Join(m.dir, group, control.CABundleKey))...)
		path := filepath.Join(m.dir, group, control.DocumentKey)
		text := m.readFile(path)
		if text == nil || !m.changed(path, text) {
			continue
		}
		_, err := m.manager.acceptDocument(path, group, text)
		if err != nil && !errors.Is(err, api.ErrOutdated) { // The operator may have pushed a newer one.
			m.manager.addProblem(path, group, err)
		}
		if _, ahead := errors.AsType[aheadOfClock](err); ahead || errors.Is(err, errBusy) {
			delete(m.checksums, path) // The same document may be accepted later.
		}
	}
	if len(caBundle) == 0 {
		return true
	}
	err := m.credentials.setMountedCAs(caBundle)
	m.logOnce("cannot trust the mounted CA bundles; retrying", m.dir, err)
	return err == nil
}

// readCABundle returns the CA bundle in a file. It returns nothing if the file is invalid: one
// group's file must not hide those of the others.
func (m *mountedFiles) readCABundle(path string) []byte {
	text := m.readFile(path)
	if text == nil {
		return nil
	}
	_, err := identity.ParseCABundle(text)
	m.logOnce("ignoring invalid CA bundle", path, err)
	if err != nil {
		return nil
	}
	return append(text, '\n') // The next one begins on its own line.
}

// logOnce logs an error that concerns a file, until there is another one or none (nil).
func (m *mountedFiles) logOnce(message, path string, err error) {
	key := [2]string{message, path}
	if err == nil {
		delete(m.logged, key)
	} else if m.logged[key] != err.Error() {
		m.logged[key] = err.Error()
		m.log.Error(message, "path", path, "error", err)
	}
}

// readGroups reads the file with the groups, if it has changed.
func (m *mountedFiles) readGroups() {
	if m.groupsFile == "" {
		return
	}
	text := m.readFile(m.groupsFile)
	if text == nil || !m.changed(m.groupsFile, text) {
		return
	}
	groups, err := parseGroups(string(text))
	if err != nil {
		m.log.Error("cannot use the groups that select the pod; continuing with the previous ones", "path", m.groupsFile, "error", err)
		return
	}
	m.groups = groups
	m.onGroups(groups)
}

func (m *mountedFiles) changed(path string, text []byte) bool {
	sum := sha256.Sum256(text)
	if m.checksums[path] == sum {
		return false
	}
	m.checksums[path] = sum
	return true
}

// readFile returns the content of a file, nil if the file is missing or unreadable.
func (m *mountedFiles) readFile(path string) []byte {
	info, err := os.Stat(path)
	if err == nil && (info.Size() > config.MaxFile || !info.Mode().IsRegular()) {
		err = errors.New("not a regular file of a valid size")
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		text, err = nil, nil
	}
	m.logOnce("cannot read mounted file", path, err)
	if err != nil {
		return nil
	}
	return text
}
