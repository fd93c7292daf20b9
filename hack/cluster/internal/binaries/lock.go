package binaries

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// retryInterval is the time between two attempts to lock a file. A blocking call of the kernel can't end with a context.
const retryInterval = 50 * time.Millisecond

// Lock locks a file until the returned function is called or the process exits. It calls waiting once if another process
// holds the lock, and waits until ctx ends. The holder may remove the file just before it unlocks: then another process can
// create and lock a new file.
func Lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	for {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, fmt.Errorf("cannot open the lock: %w", err)
		}
		if err := flock(ctx, file, waiting); err != nil {
			file.Close()
			return nil, fmt.Errorf("cannot lock %s: %w", path, err)
		}
		if current(file, path) {
			return func() { file.Close() }, nil
		}
		file.Close() // The previous holder has removed this file; lock the new one.
	}
}

func flock(ctx context.Context, file *os.File, waiting func()) error {
	for first := true; ; first = false {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			return err
		case first:
			waiting()
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
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
