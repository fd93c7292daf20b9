package binaries

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Lock holds a file's lock until the returned function is called, or the process ends in whatever way. The holder may
// remove the file as the last thing it does: from then on, another can hold the lock.
func Lock(path string, waiting func()) (unlock func(), err error) {
	for {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, fmt.Errorf("open the lock: %w", err)
		}
		if err := flock(file, waiting); err != nil {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if current(file, path) {
			return func() { file.Close() }, nil
		}
		file.Close() // Whoever held it has removed it, and the next will lock another file.
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

// current tells whether this is still the file that the path leads to.
func current(file *os.File, path string) bool {
	opened, err := file.Stat()
	if err != nil {
		return false
	}
	found, err := os.Stat(path)
	return err == nil && os.SameFile(opened, found)
}
