package binaries

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Lock locks a file until the returned function is called or the process exits. It calls waiting once if another process
// holds the lock. The holder may remove the file just before it unlocks: then another process can create and lock a new
// file.
func Lock(path string, waiting func()) (unlock func(), err error) {
	for {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, fmt.Errorf("cannot open the lock: %w", err)
		}
		if err := flock(file, waiting); err != nil {
			file.Close()
			return nil, fmt.Errorf("cannot lock %s: %w", path, err)
		}
		if current(file, path) {
			return func() { file.Close() }, nil
		}
		file.Close() // The previous holder has removed this file; lock the new one.
	}
}

func flock(file *os.File, waiting func()) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return err
	}
	waiting()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// current reports whether the path still refers to this file.
func current(file *os.File, path string) bool {
	opened, err := file.Stat()
	if err != nil {
		return false
	}
	found, err := os.Stat(path)
	return err == nil && os.SameFile(opened, found)
}
