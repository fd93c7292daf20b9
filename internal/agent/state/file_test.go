package state_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestReplaceFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, text := range []string{"first and long", "second"} {
		must.Succeed(t, state.ReplaceFile(path, []byte(text)))
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("got %q, %v, want %q", got, err, text)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("got %v, %v, want mode 0600", info, err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("got files %v, %v, want one", files, err)
	}
}

func TestReplaceFileFailsCleanly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "dir")
	must.Succeed(t, os.MkdirAll(filepath.Join(path, "in use"), 0o700))
	if err := state.ReplaceFile(path, []byte("text")); err == nil {
		t.Error("ReplaceFile replaced a directory by a file")
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 || files[0].Name() != "dir" {
		t.Errorf("got files %v, %v, want the directory alone", files, err)
	}
}
