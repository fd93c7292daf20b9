package main

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"os"
	"time"

	"github.com/conclave-dev/conclave/internal/agent"
)

// lookEvery is how soon a changed file is taken over. Polling sees what mounted
// ConfigMaps do, too, which replace a link two folders up.
const lookEvery = time.Second

// seen is a file, and what it looked like before the agent read it first: it may
// change while the agent starts.
type seen struct {
	path  string
	print [sha256.Size]byte
}

func look(path string) seen { return seen{path, fingerprint(path)} }

// watch takes the file over whenever it has changed. A bad one is refused, and
// the agent goes on with what it had; it is asked to try again only when the
// file changes once more, or with what the disk refused.
func watch(ctx context.Context, a *agent.Agent, file seen, log *slog.Logger) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	path, tried, settled := file.path, file.print, true
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := fingerprint(path)
		if now == tried && settled {
			continue
		}
		changed := now != tried
		tried = now
		next, err := load(path)
		if err == nil {
			err = a.Reload(ctx, next)
		}
		settled = err == nil || !agent.Temporary(err)
		switch {
		case err == nil:
			a.Report()
			log.Info("took over the changed file", "file", path)
		case changed:
			a.Report("the changed file was refused: " + err.Error())
			log.Error("refused the changed file, and goes on as before", "error", err)
		}
	}
}

// fingerprint tells one content of the file from the next. A file that can't be
// read has one, too.
func fingerprint(path string) [sha256.Size]byte {
	data, err := os.ReadFile(path)
	if err != nil {
		data = []byte(err.Error())
	}
	return sha256.Sum256(data)
}
