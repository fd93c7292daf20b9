package memory

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/grants"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

var ledger = Owner{Domain: "default", Member: "a", Group: "ledger", UID: "u1"}

func record(n uint64) *Record {
	moment, term := election.Tick(n), election.Term(n)
	return &Record{Holder: "member-b", Memory: grants.Memory{
		SilentUntil: moment, Forgotten: term + 1, Holder: grants.Holder{Life: uint32(n)},
		Term: term + 2, Until: moment + 1, Version: uint32(n + 1), Renewed: n%3 == 0, OlderUntil: moment - 1,
		HighestGranted: term + 3, PreviousHighest: term + 4,
	}, Tenures: office.TenureRecord{
		Leading: n%2 == 0, Since: moment + 2, Crashed: n%3 == 1, Short: int(n % 6), HeldBackUntil: moment + 3,
	}}
}

// testFolder returns a folder in a tmpfs, in which agents have their memory.
func testFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp(shm, "memory-test-")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

// testAgent is an agent that restarts.
type testAgent struct {
	t          *testing.T
	state, shm string
	dir        *Dir
	file       *File
}

func newTestAgent(t *testing.T) *testAgent {
	t.Helper()
	a := &testAgent{t: t, state: t.TempDir(), shm: testFolder(t)}
	t.Cleanup(a.stop)
	return a
}

func (a *testAgent) stop() {
	a.file.Close()
	a.dir.Close()
	a.file, a.dir = nil, nil
}

// start starts the agent, and returns what it remembers.
func (a *testAgent) start(o Owner) *Record {
	a.t.Helper()
	a.stop()
	var without, err error
	if a.dir, without, err = open(a.state, a.shm); without != nil || err != nil {
		a.t.Fatal(without, err)
	}
	return a.join(o)
}

func (a *testAgent) join(o Owner) *Record {
	a.t.Helper()
	a.file.Close()
	var remembered *Record
	var without, err error
	if a.file, remembered, without, err = a.dir.Open(o); without != nil || err != nil {
		a.t.Fatal(without, err)
	}
	return remembered
}

func (a *testAgent) save(n uint64) {
	a.t.Helper()
	must.Succeed(a.t, a.file.Save(record(n)))
}

// wantRemembered starts the agent, and checks what it remembers, nothing if n is 0.
func (a *testAgent) wantRemembered(o Owner, n uint64) {
	a.t.Helper()
	want := record(n)
	if n == 0 {
		want = nil
	}
	expect.DeepEqualf(a.t, a.start(o), want, "what the agent remembers")
}

func TestRestartedAgentRemembers(t *testing.T) {
	a := newTestAgent(t)
	a.wantRemembered(ledger, 0)
	a.save(9) // The numbers of slots continue after this process, which writes more than the next one.
	for n := range uint64(5) {
		a.save(n + 1)
		a.wantRemembered(ledger, n+1)
	}
	a.wantRemembered(ledger, 5)
	a.file.Close()
	a.save(9) // It has no effect any more.
	other := ledger
	other.Group = "audit"
	expect.DeepEqualf(t, a.join(other), nil, "what the agent remembers in another group")
	a.save(9)
	a.wantRemembered(ledger, 5)
	a.wantRemembered(other, 9)
}

// TestRecordIsForgotten: each of these processes starts without memory, and so does the next
// one, which is as the first. The record between them is outdated.
func TestRecordIsForgotten(t *testing.T) {
	for name, owner := range map[string]Owner{
		"another group of the same name": {"default", "a", "ledger", "u2", false},
		"another member":                 {"default", "b", "ledger", "u1", false},
		"another domain":                 {"other", "a", "ledger", "u1", false},
		"a process in Available mode":    {"default", "a", "ledger", "u1", true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newTestAgent(t)
			a.start(ledger)
			a.save(1)
			a.wantRemembered(owner, 0)
			a.wantRemembered(ledger, 0)
		})
	}
	for name, change := range map[string]func(*testAgent){
		"another boot":          func(a *testAgent) { a.dir.boot = "another" },
		"a new state directory": func(a *testAgent) { a.state = a.t.TempDir() },
		"access for others":     func(a *testAgent) { a.chmod(0o755) },
		"a directory of another user": func(a *testAgent) {
			if os.Chown(a.dir.path, os.Geteuid()+1, -1) != nil { // Only root can.
				a.chmod(0o755)
			}
		},
		"a longer file":                  func(a *testAgent) { a.truncate(fileSize + 1) },
		"a shorter file":                 func(a *testAgent) { a.truncate(fileSize - 1) },
		"an empty file":                  func(a *testAgent) { a.truncate(0) },
		"a directory that doesn't exist": func(a *testAgent) { _ = os.RemoveAll(a.dir.path) },
		"a link to a directory on disk":  func(a *testAgent) { a.relink(a.t.TempDir()) },
		"a file in place of a link":      func(a *testAgent) { a.relink("") },
	} {
		t.Run(name, func(t *testing.T) {
			a := newTestAgent(t)
			a.start(ledger)
			a.save(1)
			change(a)
			if name == "another boot" {
				expect.DeepEqualf(t, a.join(ledger), nil, "what the agent remembers")
				return
			}
			a.wantRemembered(ledger, 0)
			a.save(2)
			a.wantRemembered(ledger, 2)
		})
	}
}

func (a *testAgent) chmod(mode os.FileMode) {
	must.Succeed(a.t, os.Chmod(a.dir.path, mode))
}

func (a *testAgent) truncate(size int64) {
	must.Succeed(a.t, os.Truncate(a.file.path, size))
}

// relink replaces the link in the state directory, by a file if target is empty.
func (a *testAgent) relink(target string) {
	path := filepath.Join(a.state, link)
	err := os.Remove(path)
	if err == nil && target != "" {
		err = os.Symlink(target, path)
	} else if err == nil {
		err = os.WriteFile(path, nil, 0o600)
	}
	must.Succeed(a.t, err)
}

// TestProcessWithoutMemoryInvalidatesIt: a process that can't use the memory grants without
// updating it. So the next one must not use it, either.
func TestProcessWithoutMemoryInvalidatesIt(t *testing.T) {
	t.Run("no tmpfs", func(t *testing.T) {
		a := newTestAgent(t)
		a.start(ledger)
		a.save(1)
		a.chmod(0o755)
		a.stop()
		d, without, err := open(a.state, t.TempDir())
		must.Succeed(t, err)
		expect.ErrorContainsf(t, without, "must be in a tmpfs", "memory %v", d)
		expect.Equalf(t, d, nil, "memory")
		a.wantRemembered(ledger, 0)
	})
	t.Run("the directory is in use", func(t *testing.T) {
		a := newTestAgent(t)
		a.start(ledger)
		a.save(1)
		copied := newTestAgent(t)
		copied.shm = a.shm
		must.Succeed(t, os.Symlink(a.dir.path, filepath.Join(copied.state, link)))
		copied.wantRemembered(ledger, 0)
		a.stop()
		copied.save(2)
		copied.wantRemembered(ledger, 2)
		a.wantRemembered(ledger, 1)
	})
	t.Run("the file can't be used", func(t *testing.T) {
		a := newTestAgent(t)
		a.start(ledger)
		a.save(1)
		path := a.file.path
		must.Succeed(t, os.Remove(path))
		must.Succeed(t, os.Symlink(filepath.Join(t.TempDir(), "elsewhere"), path))
		a.wantRemembered(ledger, 0)
	})
	t.Run("it can't be invalidated", func(t *testing.T) {
		a := newTestAgent(t)
		must.Succeed(t, os.MkdirAll(filepath.Join(a.state, link, "x"), 0o700))
		d, _, err := open(a.state, a.shm)
		expect.ErrorContainsf(t, err, "cannot invalidate what the agent remembered", "memory %v", d)
		expect.Equalf(t, d, nil, "memory")
	})
}

// TestUnusedDirectoriesAreRemoved: those of state directories that don't exist any more, or have others.
func TestUnusedDirectoriesAreRemoved(t *testing.T) {
	used, gone, moved, running := newTestAgent(t), newTestAgent(t), newTestAgent(t), newTestAgent(t)
	for _, a := range []*testAgent{running, used, gone, moved} {
		a.shm = running.shm
		a.start(ledger)
		a.save(1)
	}
	used.stop()
	gone.stop()
	moved.stop()
	moved.relink(t.TempDir())
	must.Succeed(t, errors.Join(os.RemoveAll(gone.state), os.RemoveAll(running.state)))
	for _, name := range []string{prefix + "new", "other"} { // An agent is creating the first one.
		must.Succeed(t, os.Mkdir(filepath.Join(used.shm, name), 0o700))
	}
	must.Succeed(t, os.Symlink(gone.state, filepath.Join(used.shm, "other", owned)))
	next := newTestAgent(t)
	next.shm = used.shm
	next.start(ledger)
	if entries, err := os.ReadDir(used.shm); err != nil || len(entries) != 5 {
		t.Errorf("got %v, %v, want 5 directories", entries, err)
	}
	must.ReadFile(t, running.file.path)
	used.wantRemembered(ledger, 1)
	running.save(2)
}

// TestDamagedSlotIsIgnored flips each bit of the newest slot. Then the other slot has the
// record before. Only a write in progress leaves such a file.
func TestDamagedSlotIsIgnored(t *testing.T) {
	var of owner
	var data [slots]slot
	data[0].encode(record(1), &of, 1)
	size := data[1].encode(record(2), &of, 2)
	other := data
	binary.LittleEndian.PutUint32(other[1][atFormat:], format+1)
	binary.LittleEndian.PutUint32(other[1][atSum:], other[1].sum(size))
	_, sequence, _ := newest(&other, &of)
	expect.Equalf(t, sequence, 1, "number of the newest record, since another one is in another format")
	for bit := range size * 8 {
		damaged := data
		damaged[1][bit/8] ^= 1 << (bit % 8)
		if got, sequence, ok := newest(&damaged, &of); !ok || sequence != 1 || !reflect.DeepEqual(&got, record(1)) {
			t.Fatalf("bit %d: got %+v with number %d, want the record before", bit, got, sequence)
		}
	}
}

// TestInterruptedSave: whenever a process is killed, the file has the record before, or the
// new one. A process stores its writes in order.
func TestInterruptedSave(t *testing.T) {
	a := newTestAgent(t)
	a.start(ledger)
	for n := uint64(1); n <= 4; n++ {
		before := bytes.Clone(a.file.page)
		a.save(n)
		after := bytes.Clone(a.file.page)
		at := int(a.file.sequence % slots * slotSize)
		for written := 0; written <= slotSize; written++ {
			torn := bytes.Clone(before)
			binary.LittleEndian.PutUint64(torn[at:], 0)
			copy(torn[at+atSum:at+slotSize], after[at+atSum:at+max(written, atSum)])
			got, sequence, ok := newest(slotsOf(torn), &a.file.owner)
			if want := record(n - 1); n > 1 && (!ok || sequence != n-1 || !reflect.DeepEqual(&got, want)) || n == 1 && ok {
				t.Fatalf("record %d, after %d bytes: got %+v with number %d, want %+v", n, written, got, sequence, want)
			}
		}
		if got, _, _ := newest(slotsOf(after), &a.file.owner); !reflect.DeepEqual(&got, record(n)) {
			t.Fatalf("got %+v, want record %d", got, n)
		}
	}
}

func slotsOf(page []byte) *[slots]slot {
	return &[slots]slot{slot(page[:slotSize]), slot(page[slotSize : 2*slotSize])}
}

// TestLostPage: the agent continues without its memory, and the next process has none.
func TestLostPage(t *testing.T) {
	a := newTestAgent(t)
	a.start(ledger)
	a.save(1)
	a.truncate(0)
	expect.ErrorContainsf(t, a.file.Save(record(2)), "cannot write "+a.dir.file("ledger"),
		"the file can't be written")
	a.save(3)
	a.wantRemembered(ledger, 0)
}

func TestWithoutMemory(t *testing.T) {
	var d *Dir
	f, remembered, without, err := d.Open(ledger)
	if f != nil || remembered != nil || without != nil || err != nil {
		t.Errorf("got %v, %v, %v, %v, want nothing", f, remembered, without, err)
	}
	expect.Succeed(t, f.Save(record(1)))
	f.Close()
	d.Close()
}

func TestSaveAllocatesNothing(t *testing.T) {
	a := newTestAgent(t)
	a.start(ledger)
	r := record(1)
	expect.Equalf(t, testing.AllocsPerRun(1000, func() { _ = a.file.Save(r) }), 0, "allocations")
}

func TestRecordsSurviveEncoding(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var of owner
	for range 1000 {
		want := record(r.Uint64())
		want.Holder = strings.Repeat("x", r.IntN(maxName+1))
		var s slot
		s.encode(want, &of, 7)
		if got, sequence := s.decode(&of); sequence != 7 || !reflect.DeepEqual(&got, want) {
			t.Fatalf("got %+v with number %d, want %+v", got, sequence, want)
		}
	}
}

// FuzzNewest: whatever a file has, reading it doesn't fail, and what is read can be written.
func FuzzNewest(f *testing.F) {
	var of owner
	var s slot
	s.encode(record(3), &of, 8)
	f.Add(s[:], []byte{})
	f.Fuzz(func(t *testing.T, one, other []byte) {
		var data [slots]slot
		copy(data[0][:], one)
		copy(data[1][:], other)
		r, sequence, ok := newest(&data, &of)
		if !ok {
			return
		}
		var again slot
		again.encode(&r, &of, sequence)
		if got, n := again.decode(&of); n != sequence || !reflect.DeepEqual(got, r) {
			t.Errorf("got %+v, want %+v", got, r)
		}
	})
}
