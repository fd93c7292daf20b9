package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lock fails if another demo is running. The lock lasts until the file is closed, or the process has ended.
func lock() (*os.File, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("cannot find the cache folder: %w (set XDG_CACHE_HOME)", err)
	}
	folder := filepath.Join(base, "conclave")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(folder, "demo.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errors.New("another make demo is running: end it first, with Ctrl-C")
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
