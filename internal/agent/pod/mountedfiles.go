package pod

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/filewatch"
)

// mountedFiles watches the files that kubelet mounts into the pod: the token, and the groups
// that select the pod. kubelet replaces all files at once, by a symbolic link in their directory.
type mountedFiles struct {
	dir string
	// groupsFile has the groups, if it isn't empty. onGroups receives them.
	groupsFile string
	onGroups   func(groups []string)
	// onChange is called when a file may have changed, for example the token.
	onChange func()
	log      *slog.Logger

	// text is what groupsFile had, and logged the last error, "" if there is none.
	text   []byte
	logged string
}

// watch reads the files whenever the directory changes, until ctx ends. It calls onChange only for an actual change, so
// that an agent whose enrollment is refused doesn't retry at each poll.
func (m *mountedFiles) watch(ctx context.Context) {
	filewatch.Watch(ctx, m.dir, "", m.log, func(happened bool) bool {
		m.readGroups()
		if happened {
			m.onChange()
		}
		return true
	})
}

// readGroups reads the file with the groups, if it has changed. A missing file changes nothing.
func (m *mountedFiles) readGroups() {
	if m.groupsFile == "" {
		return
	}
	text, err := readSmallFile(m.groupsFile)
	if errors.Is(err, fs.ErrNotExist) || err == nil && bytes.Equal(text, m.text) {
		return
	}
	var groups []string
	if err == nil {
		groups, err = parseGroups(string(text))
	}
	if err == nil {
		m.text, m.logged = text, ""
		m.onGroups(groups)
	} else if m.logged != err.Error() {
		m.logged = err.Error()
		m.log.Error("cannot use the groups that select the pod; continuing with the previous ones", "path",
			m.groupsFile, "error", err)
	}
}

func readSmallFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > config.MaxFile || !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file of a valid size")
	}
	return os.ReadFile(path)
}
