package memory

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
	"github.com/conclave-dev/conclave/internal/election/office"
)

// File is the memory of one group. A nil File remembers nothing. It is not safe for concurrent use.
type File struct {
	path  string
	owner owner
	// page is the mapped file, nil once it is closed or lost.
	page     []byte
	sequence uint64
	next     slot // a variable would be allocated
}

// Save replaces the record. It makes no system call and allocates nothing. When it returns, the record survives the end
// of the process. If Save returns an error, the file is lost, with all records: there is only one such error.
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
	if n, _ := io.ReadFull(file, data[:]); n != fileSize {
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

// Record is what an agent remembers of its grants in one group.
type Record struct {
	// Memory has moments of CLOCK_BOOTTIME, and no ID of the holder: IDs are those of one process.
	grants.Memory
	// Holder is the name of the holder, or empty.
	Holder string
	// Tenures has moments of CLOCK_BOOTTIME, too.
	Tenures office.TenureRecord
}

// A file has two slots, which are written in turn. So one of them is complete, whenever the
// process is killed. Both are in the same page: if that is lost, no older record remains.
const (
	slotSize = 512
	slots    = 2
	fileSize = 4096
)

// The layout of a slot. Its sequence number is 0 while it is written.
const (
	atSequence, atSum, atFormat, atOwner                     = 0, 8, 12, 16
	atSilentUntil, atUntil, atOlderUntil                     = 32, 40, 48
	atForgotten, atTerm, atHighest, atPrevious               = 56, 64, 72, 80
	atVersion, atLife, atTenureSince, atHeldBackUntil        = 88, 92, 96, 104
	atFlags, atShort, atNameSize, atName                     = 112, 113, 114, 115
	maxName                                                  = 255
	format                                            uint32 = 3
)

// owner identifies whose memory a slot has: see Owner.
type owner [16]byte

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type slot [slotSize]byte

func (s *slot) encode(r *Record, of *owner, sequence uint64) int {
	order := binary.LittleEndian
	order.PutUint64(s[atSequence:], sequence)
	order.PutUint32(s[atFormat:], format)
	copy(s[atOwner:], of[:])
	order.PutUint64(s[atSilentUntil:], uint64(r.SilentUntil))
	order.PutUint64(s[atUntil:], uint64(r.Until))
	order.PutUint64(s[atOlderUntil:], uint64(r.OlderUntil))
	order.PutUint64(s[atForgotten:], uint64(r.Forgotten))
	order.PutUint64(s[atTerm:], uint64(r.Term))
	order.PutUint64(s[atHighest:], uint64(r.HighestGranted))
	order.PutUint64(s[atPrevious:], uint64(r.PreviousHighest))
	order.PutUint32(s[atVersion:], r.Version)
	order.PutUint32(s[atLife:], r.Memory.Holder.Life)
	order.PutUint64(s[atTenureSince:], uint64(r.Tenures.Since))
	order.PutUint64(s[atHeldBackUntil:], uint64(r.Tenures.HeldBackUntil))
	s[atFlags] = 0
	for i, flag := range []bool{r.Renewed, r.Tenures.Leading, r.Tenures.Crashed} {
		if flag {
			s[atFlags] |= 1 << i
		}
	}
	s[atShort] = byte(r.Tenures.Short)
	s[atNameSize] = byte(len(r.Holder))
	size := atName + copy(s[atName:atName+maxName], r.Holder)
	order.PutUint32(s[atSum:], s.sum(size))
	return size
}

// sum is the checksum of everything else in a slot.
func (s *slot) sum(size int) uint32 {
	return crc32.Update(crc32.Checksum(s[:atSum], castagnoli), castagnoli, s[atFormat:size])
}

// decode returns the record of a slot and its sequence number, which is 0 if the slot is
// damaged, incomplete, or somebody else's.
func (s *slot) decode(of *owner) (r Record, sequence uint64) {
	order := binary.LittleEndian
	size := atName + int(s[atNameSize])
	if order.Uint32(s[atSum:]) != s.sum(size) || order.Uint32(s[atFormat:]) != format ||
		owner(s[atOwner:atSilentUntil]) != *of {
		return Record{}, 0
	}
	term := func(at int) election.Term { return election.Term(order.Uint64(s[at:])) }
	moment := func(at int) election.Tick { return election.Tick(order.Uint64(s[at:])) }
	r.Memory = grants.Memory{
		SilentUntil: moment(atSilentUntil), Until: moment(atUntil), OlderUntil: moment(atOlderUntil),
		Forgotten: term(atForgotten), Term: term(atTerm), HighestGranted: term(atHighest),
		PreviousHighest: term(atPrevious), Version: order.Uint32(s[atVersion:]),
		Holder: grants.Holder{Life: order.Uint32(s[atLife:])}, Renewed: s[atFlags]&1 != 0,
	}
	r.Tenures = office.TenureRecord{
		Leading: s[atFlags]&2 != 0, Since: moment(atTenureSince), Crashed: s[atFlags]&4 != 0,
		Short: int(s[atShort]), HeldBackUntil: moment(atHeldBackUntil),
	}
	r.Holder = string(s[atName:size])
	return r, order.Uint64(s[atSequence:])
}

func newest(data *[slots]slot, of *owner) (r Record, sequence uint64, ok bool) {
	for i := range data {
		if found, n := data[i].decode(of); n > sequence {
			r, sequence = found, n
		}
	}
	return r, sequence, sequence > 0
}
