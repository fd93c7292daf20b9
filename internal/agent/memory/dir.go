// Package memory keeps what an agent remembers of its grants when its process is killed, so
// that the next process can grant at once. See docs/adr/0034-grants-in-a-mapped-file.md.
//
// An agent writes its memory before each answer that depends on it. This must not wait for a disk. So the files are in
// a tmpfs, in a directory of their own, and are mapped. The link "memory" in the state directory names that directory.
//
// # What makes a record valid
//
// A record is used only if it is certain that no later process has granted anything without updating it. So a record
// counts only with the boot, the clock, the state directory, the member and the group with which it was written. And a
// process that can't use the file of a group removes that, or the link to the directory. If it can't do that either, it
// must not join the group.
package memory

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	link   = "memory" // in the state directory
	owned  = "state"  // a link to the state directory, in the directory of the files
	prefix = "conclave-"
	suffix = ".grants"
)

// shm is a tmpfs on every Linux. All containers of a pod share it, until the pod ends.
const shm = "/dev/shm"

// Dir is the directory with the memory of one agent. A nil Dir remembers nothing.
type Dir struct {
	path string
	lock *os.File
	// boot identifies the boot of the machine, and its clock.
	boot string
}

// Open opens the memory of the agent that has locked a state directory. If there can't be any, it returns a nil Dir,
// and why. The error is not nil if an earlier memory can't be invalidated.
func Open(stateDir string) (d *Dir, without, err error) { return open(stateDir, shm) }

func open(stateDir, shm string) (d *Dir, without, err error) {
	stateDir, err = filepath.Abs(stateDir)
	if err != nil {
		return nil, nil, err
	}
	linkPath := filepath.Join(stateDir, link)
	boot, without := bootIdentity()
	if target, err := os.Readlink(linkPath); err == nil && without == nil {
		if d, err := use(target, boot); err == nil {
			return d, nil, nil
		}
	}
	if err := removeFile(linkPath); err != nil {
		return nil, nil, fmt.Errorf("cannot invalidate what the agent remembered of its grants: %w", err)
	}
	if without == nil {
		d, without = create(stateDir, shm, boot)
	}
	return d, without, nil
}

// bootIdentity returns what identifies the boot of the machine, and the clock: processes in
// different time namespaces have different ones.
func bootIdentity() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("cannot identify the boot of this machine: %w", err)
	}
	offsets, err := os.ReadFile("/proc/self/timens_offsets")
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // Linux has time namespaces since 5.6.
		return "", fmt.Errorf("cannot identify the clock: %w", err)
	}
	return string(boot) + string(offsets), nil
}

// use opens a directory, if it can have the memory of an agent: only this user has access, it
// is in a tmpfs, and no other process uses it.
func use(path, boot string) (*Dir, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := check(file); err != nil {
		return nil, errors.Join(fmt.Errorf("%s %w", path, err), file.Close())
	}
	return &Dir{path: path, lock: file, boot: boot}, nil
}

func check(dir *os.File) error {
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return errors.New("must be accessible to this user only")
	}
	var system unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &system); err != nil {
		return err
	}
	if system.Type != unix.TMPFS_MAGIC {
		return errors.New("must be in a tmpfs")
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("cannot be locked: %w", err)
	}
	return nil
}

// create creates a directory for the agent of a state directory, and links it.
func create(stateDir, shm, boot string) (*Dir, error) {
	removeUnused(shm)
	path, err := os.MkdirTemp(shm, prefix)
	if err != nil {
		return nil, err
	}
	d, err := use(path, boot)
	if err == nil {
		if err = os.Symlink(stateDir, filepath.Join(path, owned)); err == nil {
			err = os.Symlink(path, filepath.Join(stateDir, link))
		}
	}
	if err != nil {
		d.Close()
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return d, nil
}

// removeUnused removes this user's directories that no state directory links any more. It does what it can.
func removeUnused(shm string) {
	entries, err := os.ReadDir(shm)
	if err != nil {
		return
	}
	for _, entry := range entries {
		path := filepath.Join(shm, entry.Name())
		stateDir, err := os.Readlink(filepath.Join(path, owned))
		if err != nil || !strings.HasPrefix(entry.Name(), prefix) {
			continue
		}
		if target, _ := os.Readlink(filepath.Join(stateDir, link)); target == path {
			continue
		}
		if d, err := use(path, ""); err == nil {
			_ = os.RemoveAll(path)
			d.Close()
		}
	}
}

// Close ends the use of the directory. The memory remains.
func (d *Dir) Close() {
	if d != nil {
		_ = d.lock.Close() // Nothing was written to it.
	}
}

// Owner identifies whose memory a file has. In mode Available there are no grants, so a record of that mode must not be
// taken for what was granted.
type Owner struct {
	Domain, Member, Group, UID string
	Available                  bool
}

// Open opens the memory of a group, and returns what is remembered, nil if nothing is. If
// the file can't be used, it returns a nil File, and why. The error is not nil if an earlier
// memory can't be invalidated: then, the agent must not join the group.
func (d *Dir) Open(o Owner) (f *File, remembered *Record, without, err error) {
	if d == nil {
		return nil, nil, nil, nil
	}
	f = &File{path: d.file(o.Group), owner: d.owner(o)}
	remembered = f.load()
	if remembered == nil { // It may be damaged, or of another owner.
		if err := d.forget(o.Group); err != nil {
			return nil, nil, nil, err
		}
	}
	if without := f.mapPage(); without != nil {
		return nil, nil, without, d.forget(o.Group)
	}
	return f, remembered, nil, nil
}

// forget removes the memory of a group, in which the agent will grant without it.
func (d *Dir) forget(group string) error {
	if d == nil {
		return nil
	}
	if err := removeFile(d.file(group)); err != nil {
		return fmt.Errorf("cannot invalidate what the agent remembered of its grants in group %s: %w", group, err)
	}
	return nil
}

func (d *Dir) file(group string) string { return filepath.Join(d.path, group+suffix) }

func (d *Dir) owner(o Owner) owner {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %t", d.boot, []string{o.Domain, o.Member, o.Group, o.UID}, o.Available))
	return owner(sum[:len(owner{})])
}

// removeFile removes a file. A missing file is not an error.
func removeFile(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
