package state_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// lease is the lease of the agents in these tests.
const lease = time.Second

// role makes the test binary an agent that is killed, or an agent whose disk is full.
const role = "CONCLAVE_LISTS_TEST"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "save forever":
		saveForever(os.Args[1])
	case "full disk":
		saveOnFullDisk(os.Args[1])
	default:
		os.Exit(m.Run())
	}
}

func version(n uint32) memberlist.List {
	return memberlist.List{
		Version: n,
		Members: []memberlist.Member{
			{Name: "a", Priority: 1, Address: "127.0.0.1:7401"},
			{Name: "b", Priority: 2, Address: "127.0.0.1:7402"},
		},
		Previous: &memberlist.List{
			Version: n - 1, Members: []memberlist.Member{{Name: "a", Priority: 1, Address: "127.0.0.1:7401"}},
		},
		Departed: []string{"a"},
	}
}

func open(t *testing.T, dir string) *state.Store {
	t.Helper()
	s, err := state.Open(dir)
	must.Succeed(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// record has a list and the document that it comes from.
func record(n uint32) state.Record {
	list := version(n)
	return state.Record{
		UID: "u1", List: &list, Reserved: firstBlock(n), Lease: lease, Document: fmt.Sprint("document ", n),
		Revision: int64(n),
	}
}

// firstBlock is what is reserved together with a list.
func firstBlock(version uint32) election.Term { return election.FirstTerm(version) + election.Block }

// inFile is a record without a document.
func inFile(n uint32) state.Record {
	list := version(n)
	return state.Record{List: &list, Reserved: firstBlock(n), Lease: lease}
}

func save(t *testing.T, s *state.Store, group string, r state.Record) {
	t.Helper()
	must.Succeed(t, s.Save(group, r))
}

func load(t *testing.T, s *state.Store, group string) state.Record {
	t.Helper()
	r, err := s.Load(group)
	if err != nil || r.List == nil {
		t.Fatalf("got %+v, %v, want a list", r, err)
	}
	return r
}

func TestLoadAfterRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	s := open(t, dir)
	if r, err := s.Load("ledger"); !reflect.DeepEqual(r, state.Record{}) || err != nil {
		t.Fatalf("got %+v, %v from a new directory, want none", r, err)
	}
	save(t, s, "ledger", record(4))
	save(t, s, "ledger", record(5))
	save(t, s, "audit.v2", inFile(9))
	must.Succeed(t, s.Close())

	s = open(t, dir)
	for group, want := range map[string]state.Record{"ledger": record(5), "audit.v2": inFile(9)} {
		expect.DeepEqualf(t, load(t, s, group), want, "%s", group)
	}
}

func TestSaveRefusesOlderVersion(t *testing.T) {
	s := open(t, t.TempDir())
	save(t, s, "ledger", record(5))
	expect.Equal(t, fmt.Sprint(s.Save("ledger", record(4))),
		"cannot replace version 5 of the list of group ledger, which has been adopted, by version 4")
	expect.DeepEqualf(t, load(t, s, "ledger"), record(5), "record")
}

// TestSaveWithoutListKeepsStoredOne: a document without this pod doesn't make the agent forget
// the list that it adopted before.
func TestSaveWithoutListKeepsStoredOne(t *testing.T) {
	s := open(t, t.TempDir())
	save(t, s, "ledger", record(5))
	save(t, s, "ledger", state.Record{UID: "u1", Lease: time.Millisecond, Document: "document 6", Revision: 6})
	want := record(5)
	want.Document, want.Revision = "document 6", 6
	expect.DeepEqualf(t, load(t, s, "ledger"), want, "record")
}

func TestOpenLocksDirectory(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	_, err := state.Open(dir)
	expect.Equal(t, fmt.Sprint(err), "cannot lock the state directory "+dir+
		": another agent uses it; each agent needs its own directory")
	must.Succeed(t, s.Close())
	open(t, dir)
}

// TestCloseUnlocksForStartedProcess: between fork and exec, a process that is being started has all open files.
func TestCloseUnlocksForStartedProcess(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	descriptors, err := os.ReadDir("/proc/self/fd")
	must.Succeed(t, err)
	copies := 0
	for _, d := range descriptors {
		number, _ := strconv.Atoi(d.Name())
		if path, _ := os.Readlink("/proc/self/fd/" + d.Name()); path != dir {
			continue
		}
		copied, err := syscall.Dup(number)
		must.Succeed(t, err)
		t.Cleanup(func() { _ = syscall.Close(copied) })
		copies++
	}
	if copies == 0 {
		t.Fatal("the directory isn't open")
	}
	must.Succeed(t, s.Close())
	open(t, dir)
}

func TestOpenNamesInvalidPath(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(file, nil, 0o600))
	for dir, what := range map[string]string{file: "read", filepath.Join(file, "below"): "create"} {
		_, err := state.Open(dir)
		expect.ErrorContainsf(t, err, file, "%s", dir)
		expect.ErrorContainsf(t, err, "cannot "+what+" the state directory", "%s", dir)
	}
}

func TestGroupNamesAreValidated(t *testing.T) {
	s := open(t, t.TempDir())
	for _, group := range []string{"", "../ledger", "a/b", "A"} {
		if err := s.Save(group, record(1)); err == nil {
			t.Errorf("Save accepted group %q", group)
		}
		if _, err := s.Load(group); err == nil {
			t.Errorf("Load accepted group %q", group)
		}
	}
}

// TestLoadDetectsDamage flips each bit of a file, and truncates it at each length.
func TestLoadDetectsDamage(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	save(t, s, "ledger", record(5))
	path := filepath.Join(dir, "ledger.state")
	whole := must.ReadFile(t, path)
	expectError := func(what string, data []byte) {
		t.Helper()
		must.Succeed(t, os.WriteFile(path, data, 0o600))
		if r, err := s.Load("ledger"); err == nil || !strings.HasPrefix(err.Error(), path+" is ") {
			t.Fatalf("%s: got %+v, %v, want an error", what, r, err)
		}
	}
	for i := range whole {
		for bit := range 8 {
			flipped := bytes.Clone(whole)
			flipped[i] ^= 1 << bit
			expectError(fmt.Sprintf("bit %d of byte %d", bit, i), flipped)
		}
		expectError(fmt.Sprintf("%d bytes", i), whole[:i])
	}
	expectError("twice", append(bytes.Clone(whole), whole...))
	expectError("zeroes, as after a power cut", make([]byte, len(whole)))

	if err := s.Save("ledger", record(6)); err == nil {
		t.Error("Save replaced a damaged file, whose list may have been newer")
	}
	must.Succeed(t, os.WriteFile(path, whole, 0o600))
	save(t, s, "ledger", record(6))
}

func TestLoadDetectsFileOfAnotherGroup(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	save(t, s, "ledger", record(5))
	must.Succeed(t, os.Rename(filepath.Join(dir, "ledger.state"), filepath.Join(dir, "audit.state")))
	_, err := s.Load("audit")
	expect.Equal(t, fmt.Sprint(err), filepath.Join(dir, "audit.state")+
		" is the state of group ledger: remove the whole state directory while the agent is down: then it is another voter")
}

// TestLoadRefusesInvalidRecords: their checksums are right, so a later version of the agent may have written them.
func TestLoadRefusesInvalidRecords(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for body, want := range map[string]string{
		`{"uid": "u1", "later": 1, "group": "ledger"}`:                            " is invalid: ",
		`{"revision": 1, "group": "ledger"}`:                                      " contains no list: ",
		`{"list": {"version": 0, "members": [{"name": "a"}]}, "group": "ledger"}`: " contains no list: ",
		`{"list": {"version": 1, "members": []}, "group": "ledger"}`:              " contains no list: ",
	} {
		data := fmt.Appendf(nil, "conclave group state 2, sha256 %x\n%s", sha256.Sum256([]byte(body)), body)
		must.Succeed(t, os.WriteFile(filepath.Join(dir, "ledger.state"), data, 0o600))
		_, err := s.Load("ledger")
		expect.ErrorContainsf(t, err, want, "%s", body)
	}
}

func TestOpenRemovesUnfinishedFiles(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	save(t, s, "ledger", record(5))
	s.Close()
	rest := filepath.Join(dir, "ledger.state.new")
	must.Succeed(t, os.WriteFile(rest, []byte("conclave grou"), 0o600))
	s = open(t, dir)
	expect.Equalf(t, load(t, s, "ledger").List.Version, 5, "version")
	if _, err := os.Stat(rest); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the unfinished file still exists:", err)
	}
}

// inRole returns a command that runs the test binary in a role.
func inRole(t *testing.T, name, dir string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], dir)
	cmd.Env = append(os.Environ(), role+"="+name)
	return cmd
}

// TestSavedListSurvivesKill kills an agent repeatedly while it saves lists and documents. Each
// version that it reported as saved must be there, with its document.
func TestSavedListSurvivesKill(t *testing.T) {
	dir := t.TempDir()
	reported := uint32(0)
	for range 10 {
		agent := inRole(t, "save forever", dir)
		out, err := agent.StdoutPipe()
		must.Succeed(t, err)
		must.Succeed(t, agent.Start())
		lines := bufio.NewScanner(out)
		for enough := reported + 20; reported < enough && lines.Scan(); {
			n, err := strconv.ParseUint(lines.Text(), 10, 32)
			if err != nil {
				t.Fatal(lines.Text())
			}
			reported = uint32(n)
		}
		must.Succeed(t, agent.Process.Kill())
		for lines.Scan() { // reported before it was killed
			n, _ := strconv.ParseUint(lines.Text(), 10, 32)
			reported = max(reported, uint32(n))
		}
		agent.Wait() //nolint:errcheck // It was killed.

		s := open(t, dir)
		got := load(t, s, "ledger")
		if n := got.List.Version; !reflect.DeepEqual(got, record(n)) || n < reported || n > reported+1 {
			t.Fatalf("got %+v, want version %d or the next one", got, reported)
		}
		reported = got.List.Version
		s.Close()
	}
}

func saveForever(dir string) {
	s, err := state.Open(dir)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	stored, err := s.Load("ledger")
	n := uint32(1)
	if stored.List != nil {
		n += stored.List.Version
	}
	for ; err == nil; n++ {
		if err = s.Save("ledger", record(n)); err == nil {
			fmt.Println(n)
		}
	}
	fmt.Println(err)
}

// TestFullDiskKeepsOldRecord limits the size of files, which applies to root, too: a write
// fails in the middle, as on a full disk.
func TestFullDiskKeepsOldRecord(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	save(t, s, "ledger", record(5))
	s.Close()

	out, err := inRole(t, "full disk", dir).CombinedOutput()
	if want := "cannot store the state of group ledger: write " + filepath.Join(dir, "ledger.state.new") +
		": file too large\n"; err != nil || string(out) != want {
		t.Errorf("got %s(%v), want %s", out, err, want)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2 {
		t.Errorf("got files %v, %v, want the old file and the identity alone", files, err)
	}
	s = open(t, dir)
	expect.DeepEqualf(t, load(t, s, "ledger"), record(5), "version 5")
	save(t, s, "ledger", record(6))
}

func saveOnFullDisk(dir string) {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := state.Open(dir)
	if err == nil {
		err = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 100, Max: 100})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(s.Save("ledger", record(6)))
}

// TestGroupWithAnotherUIDReplacesRecord: the new group begins with its own list and lease.
func TestGroupWithAnotherUIDReplacesRecord(t *testing.T) {
	s := open(t, t.TempDir())
	before, next := record(9), record(1)
	before.Lease, next.UID = time.Minute, "u2"
	save(t, s, "ledger", before)
	save(t, s, "ledger", next)
	expect.DeepEqualf(t, load(t, s, "ledger"), next, "record")
	expect.Succeedf(t, s.Leave(state.Key{Group: "ledger", UID: "u1"}, 10), "leaving the replaced group")
	expect.DeepEqualf(t, load(t, s, "ledger"), next, "record of the next group")
	_, err := s.Join(state.Key{Group: "ledger", UID: "u1"}, lease)
	expect.ErrorContainsf(t, err, "no stored list", "joining the replaced group")
}

// TestLeaveRemovesListAndDocument: what remains tells outdated documents, and what the agent may have granted.
func TestLeaveRemovesListAndDocument(t *testing.T) {
	s := open(t, t.TempDir())
	save(t, s, "ledger", record(5))
	for range 2 {
		must.Succeed(t, s.Leave(state.Key{Group: "ledger", UID: "u1"}, 6))
		want := state.Record{UID: "u1", Lease: lease, Reserved: firstBlock(5), Revision: 6}
		if r, err := s.Load("ledger"); err != nil || !reflect.DeepEqual(r, want) {
			t.Errorf("got %+v, %v, want no list and no document", r, err)
		}
	}
	next := record(1) // The agent may join again with any list.
	next.Revision = 7
	save(t, s, "ledger", next)
}

// TestSaveOfWhatIsStoredNeedsNoDisk: an agent restarts although the disk is full.
func TestSaveOfWhatIsStoredNeedsNoDisk(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	save(t, s, "ledger", record(5))
	must.Succeed(t, os.MkdirAll(filepath.Join(dir, "ledger.state"+state.TempSuffix, "full"), 0o700))
	save(t, s, "ledger", record(5))
	expect.ErrorContainsf(t, s.Save("ledger", record(6)), "cannot store the state of group ledger", "another record")
}
