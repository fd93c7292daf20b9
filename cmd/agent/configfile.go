package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/conclave-dev/conclave/internal/agent"
	"github.com/conclave-dev/conclave/internal/agent/filewatch"
)

// configFile is a configuration file with the checksum of the content that the agent loaded.
type configFile struct {
	path    string
	content [sha256.Size]byte
}

// openConfigFile records the content of a file. Call it before reading the file, so that watch doesn't miss a change.
func openConfigFile(path string) configFile {
	content, _ := checksum(path) // Whoever reads the file reports the error.
	return configFile{path, content}
}

// watch reloads the file whenever it changes, until ctx ends. If a file is refused, the
// agent continues with its previous settings. watch retries a refused file only when it
// changes again, or after a temporary error such as a full disk.
func (f configFile) watch(ctx context.Context, a *agent.Agent, log *slog.Logger) {
	tried, final := f.content, true
	if err := a.NotStored(); err != nil {
		final = false
		a.SetProblems("cannot apply the configuration yet: " + err.Error())
		log.Error("cannot apply the configuration yet; continuing with the previous lists and leases", "error", err)
	}
	filewatch.Watch(ctx, filepath.Dir(f.path), filepath.Base(f.path), log, func(bool) bool {
		now, err := checksum(f.path)
		if err != nil {
			if final {
				a.SetProblems(err.Error())
				log.Error("continuing with the previous configuration", "error", err)
			}
			tried, final = now, false
			return false
		}
		if now == tried && final {
			return true
		}
		changed := now != tried
		tried = now
		next, err := load(f.path)
		if err == nil {
			err = a.Reload(ctx, next)
		}
		final = err == nil || !agent.Temporary(err)
		if err != nil {
			err = errors.New(strings.ReplaceAll(err.Error(), "\n", "; ")) // one line
		}
		switch {
		case err == nil:
			a.SetProblems()
			log.Info("reloaded configuration", "file", f.path)
		case changed && !final:
			a.SetProblems("cannot apply the changed configuration yet: " + err.Error())
			log.Error("cannot apply the changed configuration yet; continuing with the previous one", "error", err)
		case changed:
			a.SetProblems("refused changed configuration: " + err.Error())
			log.Error("refused changed configuration; continuing with the previous one", "error", err)
		}
		return final
	})
}

func checksum(path string) ([sha256.Size]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("cannot read the configuration: %w", err)
	}
	return sha256.Sum256(data), nil
}
