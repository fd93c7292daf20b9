package main

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/conclave-dev/conclave/internal/agent"
	"github.com/conclave-dev/conclave/internal/agent/filewatch"
)

// file is a configuration and what was in it when it was taken over.
type configFile struct {
	path    string
	content [sha256.Size]byte
}

// look remembers what is in a file. That must come before reading it, so that
// no change is missed.
func openConfigFile(path string) configFile { return configFile{path, checksum(path)} }

// watch takes the file over whenever it has changed. A bad one is refused, and
// the agent goes on with what it had; it is asked to try again only when the
// file changes once more, or with what the disk refused.
func (f configFile) watch(ctx context.Context, a *agent.Agent, log *slog.Logger) {
	tried, settled := f.content, true
	filewatch.Watch(ctx, filepath.Dir(f.path), log, func(bool) bool {
		now := checksum(f.path)
		if now == tried && settled {
			return true
		}
		changed := now != tried
		tried = now
		next, err := load(f.path)
		if err == nil {
			err = a.Reload(ctx, next)
		}
		settled = err == nil || !agent.Temporary(err)
		switch {
		case err == nil:
			a.SetProblems()
			log.Info("took over the changed file", "file", f.path)
		case changed:
			a.SetProblems("the changed file was refused: " + err.Error())
			log.Error("refused the changed file, and goes on as before", "error", err)
		}
		return settled
	})
}

// fingerprint tells one content of the file from the next. A file that can't be
// read has one, too.
func checksum(path string) [sha256.Size]byte {
	data, err := os.ReadFile(path)
	if err != nil {
		data = []byte(err.Error())
	}
	return sha256.Sum256(data)
}
