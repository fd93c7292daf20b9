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

// lease is what the agents of these tests grant for.
const lease = time.Second

// role makes the test's program an agent that is killed, or one whose disk is full.
const role = "CONCLAVE_LISTS_TEST"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "saves for ever":
		saveForEver(os.Args[1])
	case "has a full disk":
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

func opened(t *testing.T, dir string) *state.Store {
	t.Helper()
	s, err := state.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func saved(t *testing.T, s *state.Store, group string, list config.List) {
	t.Helper()
	if err := s.Save(state.Key{Group: group}, list, lease); err != nil {
		t.Fatal(err)
	}
}

func loaded(t *testing.T, s *state.Store, group string) config.List {
	t.Helper()
	list, found, err := s.Load(state.Key{Group: group})
	if err != nil || !found {
		t.Fatalf("found %v, %v", found, err)
	}
	return list
}

func TestWhatWasSavedIsLoadedAfterARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	s := opened(t, dir)
	if list, found, err := s.Load(state.Key{Group: "ledger"}); found || err != nil {
		t.Fatalf("a new folder has %+v, %v", list, err)
	}
	saved(t, s, "ledger", version(4))
	saved(t, s, "ledger", version(5))
	saved(t, s, "audit.v2", version(9))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = opened(t, dir)
	for group, want := range map[string]config.List{"ledger": version(5), "audit.v2": version(9)} {
		if got := loaded(t, s, group); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", group, got, want)
		}
	}
}

func TestSaveNeverGoesBack(t *testing.T) {
	s := opened(t, t.TempDir())
	saved(t, s, "ledger", version(5))
	err := s.Save(state.Key{Group: "ledger"}, version(4), lease)
	if err == nil || err.Error() != "version 4 of group ledger's list can't replace version 5, which has been adopted" {
		t.Error(err)
	}
	if got := loaded(t, s, "ledger"); got.Version != 5 {
		t.Errorf("version %d is kept", got.Version)
	}
}

func TestTwoAgentsCannotShareAFolder(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, dir)
	_, err := state.Open(dir)
	if want := "another agent uses the state folder " + dir + ": give each agent one of its own"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	opened(t, dir)
}

func TestAFolderThatCannotBeIsNamed(t *testing.T) {
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

func TestAGroupIsNoPath(t *testing.T) {
	s := opened(t, t.TempDir())
	for _, group := range []string{"", "../ledger", "a/b", "A"} {
		if err := s.Save(state.Key{Group: group}, version(1), lease); err == nil {
			t.Errorf("%q was saved", group)
		}
		if _, _, err := s.Load(state.Key{Group: group}); err == nil {
			t.Errorf("%q was loaded", group)
		}
	}
}

// TestNoDamageGoesUnnoticed flips each bit of a file, and cuts it everywhere.
func TestNoDamageGoesUnnoticed(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, dir)
	saved(t, s, "ledger", version(5))
	path := filepath.Join(dir, "ledger.list")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	notice := func(what string, data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if list, found, err := s.Load(state.Key{Group: "ledger"}); err == nil || !strings.HasPrefix(err.Error(), path+" is ") {
			t.Fatalf("%s: found %v %+v, %v", what, found, list, err)
		}
	}
	for i := range whole {
		for bit := range 8 {
			flipped := bytes.Clone(whole)
			flipped[i] ^= 1 << bit
			notice(fmt.Sprintf("bit %d of byte %d", bit, i), flipped)
		}
		notice(fmt.Sprintf("%d bytes", i), whole[:i])
	}
	notice("twice", append(bytes.Clone(whole), whole...))
	notice("zeroes, as after a power cut", make([]byte, len(whole)))

	if err := s.Save(state.Key{Group: "ledger"}, version(6), lease); err == nil {
		t.Error("a damaged list was replaced: it may have been newer")
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	saved(t, s, "ledger", version(6))
}

func TestAnotherGroupsFileIsNoticed(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, dir)
	saved(t, s, "ledger", version(5))
	if err := os.Rename(filepath.Join(dir, "ledger.list"), filepath.Join(dir, "audit.list")); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.Load(state.Key{Group: "audit"})
	want := filepath.Join(dir, "audit.list") + " is the list of group ledger: restore it; or, if no other agent of group audit " +
		"runs or the configuration names the newest list and its previous, remove it"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestAnUnfinishedListIsClearedAway(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, dir)
	saved(t, s, "ledger", version(5))
	s.Close()
	rest := filepath.Join(dir, "ledger.list.new")
	if err := os.WriteFile(rest, []byte("conclave memb"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = opened(t, dir)
	if got := loaded(t, s, "ledger"); got.Version != 5 {
		t.Errorf("version %d is kept", got.Version)
	}
	if _, err := os.Stat(rest); !errors.Is(err, fs.ErrNotExist) {
		t.Error("it is still there:", err)
	}
}

// as runs the test's program in a role.
func as(t *testing.T, what, dir string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], dir)
	cmd.Env = append(os.Environ(), role+"="+what)
	return cmd
}

// TestAKilledAgentKeepsWhatItSaved kills an agent at some point of its saving,
// again and again. What it has said to be saved must be there.
func TestAKilledAgentKeepsWhatItSaved(t *testing.T) {
	dir := t.TempDir()
	said := uint32(0)
	for range 10 {
		agent := as(t, "saves for ever", dir)
		out, err := agent.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for enough := said + 20; said < enough && lines.Scan(); {
			n, err := strconv.ParseUint(lines.Text(), 10, 32)
			if err != nil {
				t.Fatal(lines.Text())
			}
			said = uint32(n)
		}
		if err := agent.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it said while it was killed
			n, _ := strconv.ParseUint(lines.Text(), 10, 32)
			said = max(said, uint32(n))
		}
		agent.Wait() //nolint:errcheck // it was killed

		s := opened(t, dir)
		if got := loaded(t, s, "ledger"); !reflect.DeepEqual(got, version(got.Version)) || got.Version < said || got.Version > said+1 {
			t.Fatalf("it said that %d is saved, and %+v is kept", said, got)
		}
		said = loaded(t, s, "ledger").Version
		s.Close()
	}
}

func saveForEver(dir string) {
	s, err := state.Open(dir)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	kept, _, err := s.Load(state.Key{Group: "ledger"})
	for n := kept.Version + 1; err == nil; n++ {
		if err = s.Save(state.Key{Group: "ledger"}, version(n), lease); err == nil {
			fmt.Println(n)
		}
	}
	fmt.Println(err)
}

// TestAFullDiskKeepsTheOldList limits the size of files, to root as well: the
// write fails in the middle, as on a full disk.
func TestAFullDiskKeepsTheOldList(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, dir)
	saved(t, s, "ledger", version(5))
	s.Close()

	out, err := as(t, "has a full disk", dir).CombinedOutput()
	if want := "keep version 6 of group ledger's list: write " + filepath.Join(dir, "ledger.list.new") + ": file too large\n"; err != nil || string(out) != want {
		t.Errorf("it said %s(%v), want %s", out, err, want)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("it left %v, %v", files, err)
	}
	s = opened(t, dir)
	if got := loaded(t, s, "ledger"); !reflect.DeepEqual(got, version(5)) {
		t.Errorf("%+v is kept", got)
	}
	saved(t, s, "ledger", version(6))
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

// TestGroupsOfTheSameNameHaveHistoriesOfTheirOwn.
func TestGroupsOfTheSameNameHaveHistoriesOfTheirOwn(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, dir)
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
		t.Error("it can't be forgotten twice", err)
	}
	for key, want := range map[state.Key]uint32{file: 9, first: 0, second: 7} {
		if list, found, err := s.Load(key); err != nil || list.Version != want || found != (want > 0) {
			t.Errorf("%v: %d, %t, %v", key, list.Version, found, err)
		}
	}
	if err := os.Rename(filepath.Join(dir, "ledger@u2.list"), filepath.Join(dir, "ledger@u1.list")); err != nil {
		t.Fatal(err)
	}
	if list, _, err := s.Load(first); err == nil {
		t.Errorf("another group's list is taken: %+v", list)
	}
	if err := s.Save(state.Key{Group: "ledger", UID: "../x"}, version(1), lease); err == nil {
		t.Error("a UID leads out of the folder")
	}
}
