package state_test

import (
	"bufio"
	"bytes"
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

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/state"
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

func version(n uint32) config.List {
	return config.List{
		Version: n,
		Members: []config.Member{
			{Name: "a", Priority: 1, Address: "127.0.0.1:7401"},
			{Name: "b", Priority: 2, Address: "127.0.0.1:7402"},
		},
		Previous: &config.List{Version: n - 1, Members: []config.Member{{Name: "a", Priority: 1, Address: "127.0.0.1:7401"}}},
		Departed: []string{"a"},
		Floor:    27993601,
	}
}

func open(t *testing.T, dir string) *state.Store {
	t.Helper()
	s, err := state.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func save(t *testing.T, s *state.Store, group string, list config.List) {
	t.Helper()
	if err := s.Save(state.Key{Group: group}, list, lease); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, s *state.Store, group string) config.List {
	t.Helper()
	list, found, err := s.Load(state.Key{Group: group})
	if err != nil || !found {
		t.Fatalf("got found=%v, %v, want a list", found, err)
	}
	return list
}

func TestLoadAfterRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	s := open(t, dir)
	if list, found, err := s.Load(state.Key{Group: "ledger"}); found || err != nil {
		t.Fatalf("got %+v, %v from a new directory, want none", list, err)
	}
	save(t, s, "ledger", version(4))
	save(t, s, "ledger", version(5))
	save(t, s, "audit.v2", version(9))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open(t, dir)
	for group, want := range map[string]config.List{"ledger": version(5), "audit.v2": version(9)} {
		if got := load(t, s, group); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", group, got, want)
		}
	}
}

func TestSaveRefusesOlderVersion(t *testing.T) {
	s := open(t, t.TempDir())
	save(t, s, "ledger", version(5))
	err := s.Save(state.Key{Group: "ledger"}, version(4), lease)
	if err == nil || err.Error() != "cannot replace version 5 of the list of group ledger, which has been adopted, by version 4" {
		t.Error(err)
	}
	if got := load(t, s, "ledger"); got.Version != 5 {
		t.Errorf("got version %d, want 5", got.Version)
	}
}

func TestOpenLocksDirectory(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	_, err := state.Open(dir)
	if want := "cannot lock the state directory " + dir + ": another agent uses it; each agent needs its own directory"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
}

func TestOpenNamesInvalidPath(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		if _, err := state.Open(dir); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestGroupNamesAreValidated(t *testing.T) {
	s := open(t, t.TempDir())
	for _, group := range []string{"", "../ledger", "a/b", "A"} {
		if err := s.Save(state.Key{Group: group}, version(1), lease); err == nil {
			t.Errorf("Save accepted group %q", group)
		}
		if _, _, err := s.Load(state.Key{Group: group}); err == nil {
			t.Errorf("Load accepted group %q", group)
		}
	}
}

// TestLoadDetectsDamage flips each bit of a file, and truncates it at each length.
func TestLoadDetectsDamage(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	save(t, s, "ledger", version(5))
	path := filepath.Join(dir, "ledger.list")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	expectError := func(what string, data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if list, found, err := s.Load(state.Key{Group: "ledger"}); err == nil || !strings.HasPrefix(err.Error(), path+" is ") {
			t.Fatalf("%s: got found=%v %+v, %v, want an error", what, found, list, err)
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

	if err := s.Save(state.Key{Group: "ledger"}, version(6), lease); err == nil {
		t.Error("Save replaced a damaged list, which may have been newer")
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	save(t, s, "ledger", version(6))
}

func TestLoadDetectsFileOfAnotherGroup(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	save(t, s, "ledger", version(5))
	if err := os.Rename(filepath.Join(dir, "ledger.list"), filepath.Join(dir, "audit.list")); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.Load(state.Key{Group: "audit"})
	want := filepath.Join(dir, "audit.list") + " is the list of group ledger: restore it; or, if no other agent of group audit " +
		"runs or the configuration has the newest list and its previous, remove it"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestOpenRemovesUnfinishedFiles(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	save(t, s, "ledger", version(5))
	s.Close()
	rest := filepath.Join(dir, "ledger.list.new")
	if err := os.WriteFile(rest, []byte("conclave memb"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	if got := load(t, s, "ledger"); got.Version != 5 {
		t.Errorf("got version %d, want 5", got.Version)
	}
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

// TestSavedListSurvivesKill kills an agent repeatedly while it saves lists. Each version
// that it reported as saved must be there.
func TestSavedListSurvivesKill(t *testing.T) {
	dir := t.TempDir()
	reported := uint32(0)
	for range 10 {
		agent := inRole(t, "save forever", dir)
		out, err := agent.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for enough := reported + 20; reported < enough && lines.Scan(); {
			n, err := strconv.ParseUint(lines.Text(), 10, 32)
			if err != nil {
				t.Fatal(lines.Text())
			}
			reported = uint32(n)
		}
		if err := agent.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // reported before it was killed
			n, _ := strconv.ParseUint(lines.Text(), 10, 32)
			reported = max(reported, uint32(n))
		}
		agent.Wait() //nolint:errcheck // It was killed.

		s := open(t, dir)
		if got := load(t, s, "ledger"); !reflect.DeepEqual(got, version(got.Version)) || got.Version < reported || got.Version > reported+1 {
			t.Fatalf("got %+v, want version %d or the next one", got, reported)
		}
		reported = load(t, s, "ledger").Version
		s.Close()
	}
}

func saveForever(dir string) {
	s, err := state.Open(dir)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	stored, _, err := s.Load(state.Key{Group: "ledger"})
	for n := stored.Version + 1; err == nil; n++ {
		if err = s.Save(state.Key{Group: "ledger"}, version(n), lease); err == nil {
			fmt.Println(n)
		}
	}
	fmt.Println(err)
}

// TestFullDiskKeepsOldList limits the size of files, which applies to root, too: a write
// fails in the middle, as on a full disk.
func TestFullDiskKeepsOldList(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	save(t, s, "ledger", version(5))
	s.Close()

	out, err := inRole(t, "full disk", dir).CombinedOutput()
	if want := "cannot store version 6 of the list of group ledger: write " + filepath.Join(dir, "ledger.list.new") + ": file too large\n"; err != nil || string(out) != want {
		t.Errorf("got %s(%v), want %s", out, err, want)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("got files %v, %v, want the old list alone", files, err)
	}
	s = open(t, dir)
	if got := load(t, s, "ledger"); !reflect.DeepEqual(got, version(5)) {
		t.Errorf("got %+v, want version 5", got)
	}
	save(t, s, "ledger", version(6))
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
	fmt.Println(s.Save(state.Key{Group: "ledger"}, version(6), lease))
}

func TestListsAreSeparateForEachUID(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	file, first, second := state.Key{Group: "ledger"}, state.Key{Group: "ledger", UID: "u1"}, state.Key{Group: "ledger", UID: "u2"}
	for n, key := range []state.Key{file, first, second} {
		if err := s.Save(key, version(uint32(9-n)), lease); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Remove(first); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(first); err != nil {
		t.Error("removing it twice:", err)
	}
	for key, want := range map[state.Key]uint32{file: 9, first: 0, second: 7} {
		if list, found, err := s.Load(key); err != nil || list.Version != want || found != (want > 0) {
			t.Errorf("%v: got version %d, found=%t, %v, want version %d", key, list.Version, found, err, want)
		}
	}
	if err := os.Rename(filepath.Join(dir, "ledger@u2.list"), filepath.Join(dir, "ledger@u1.list")); err != nil {
		t.Fatal(err)
	}
	if list, _, err := s.Load(first); err == nil {
		t.Errorf("got the list of another UID: %+v", list)
	}
	if err := s.Save(state.Key{Group: "ledger", UID: "../x"}, version(1), lease); err == nil {
		t.Error("Save accepted a UID with a path")
	}
}
