package memory

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// File is the memory of one group. A nil File remembers nothing. It is not safe for
// concurrent use.
type File struct {
	path  string
	owner owner
	// page is the mapped file, nil once it is closed or lost.
	page     []byte
	sequence uint64
	next     slot // a variable would be allocated
}

// Save replaces the record. It makes no system call and allocates nothing. When it returns,
// the record survives the end of the process. If Save returns an error, the file is lost, with
// all records: there is only one such error.
func (f *File) Save(r *Record) (err error) {
	if f == nil || f.page == nil {
		return nil
	}
	// A file of which a page can't be accessed, because somebody has truncated it, for example.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			err = f.lost(fault)
		}
	}()
	f.sequence++
	size := f.next.encode(r, &f.owner, f.sequence)
	at := f.page[f.sequence%slots*slotSize:][:slotSize]
	sequence := (*uint64)(unsafe.Pointer(&at[atSequence]))
	atomic.StoreUint64(sequence, 0)
	copy(at[atSum:size], f.next[atSum:size])
	atomic.StoreUint64(sequence, f.sequence)
	return nil
}

// lost is called with what a panic has reported. Both slots are gone with the page. To remove
// the file only makes that visible.
func (f *File) lost(fault any) error {
	access, ok := fault.(interface {
		error
		Addr() uintptr
	})
	if !ok {
		panic(fault)
	}
	f.page = nil
	return errors.Join(fmt.Errorf("cannot write %s: %w", f.path, access), removeFile(f.path))
}

// Close ends the use of the file. Its record remains.
func (f *File) Close() {
	if f == nil || f.page == nil {
		return
	}
	_ = unix.Munmap(f.page) // Every page of it was mapped.
	f.page = nil
}

// load returns the record in the file, nil if there is none of this owner.
func (f *File) load() *Record {
	file, err := os.OpenFile(f.path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	defer file.Close()
	var data [fileSize + 1]byte
	if n, err := io.ReadFull(file, data[:]); n != fileSize || !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	r, sequence, ok := newest((*[slots]slot)(unsafe.Pointer(&data)), &f.owner)
	if !ok {
		return nil
	}
	f.sequence = sequence
	return &r
}

// mapPage maps the file, and creates it if it doesn't exist. It allocates the page first:
// otherwise, a write would fail if there is no memory for it.
func (f *File) mapPage() error {
	file, err := os.OpenFile(f.path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.Fallocate(int(file.Fd()), 0, 0, fileSize); err != nil {
		return fmt.Errorf("cannot allocate %s: %w", f.path, err)
	}
	f.page, err = unix.Mmap(int(file.Fd()), 0, fileSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("cannot map %s: %w", f.path, err)
	}
	return nil
}
