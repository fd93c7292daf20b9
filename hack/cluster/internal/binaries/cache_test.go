package binaries

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// greeter is a component that builds quickly.
var greeter = Component{
	Name: "greeter", Module: "greeter", Packages: []string{"."}, Output: "greeter", Links: []string{"hello", "goodbye"},
}

const greeterSource = `package main

import "os"

func main() { os.Stdout.WriteString(os.Args[0][len(os.Args[0])-5:]) }
`

// newCache returns a cache for a repository with the greeter, and a function that returns the lines of progress.
func newCache(t *testing.T) (cache Cache, progress func() string) {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, "greeter", "main.go"), greeterSource)
	write(t, filepath.Join(root, "greeter", "go.mod"), "module example.com/greeter\n\ngo 1.26.0\n")
	write(t, filepath.Join(root, "greeter", "go.sum"), "")
	var mu sync.Mutex
	var lines []string
	cache = Cache{Root: root, Directory: filepath.Join(t.TempDir(), "cache"), Printf: func(format string, values ...any) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, fmt.Sprintf(format, values...))
	}}
	return cache, func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(lines, "\n")
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Succeed(t, os.WriteFile(path, []byte(content), 0o644))
}

func TestGetBuildsOnce(t *testing.T) {
	cache, progress := newCache(t)
	// Several commands call Get at the same time.
	directories := make(chan string)
	for range 4 {
		go func() {
			directory, err := cache.Get(t.Context(), greeter)
			if err != nil {
				t.Error(err)
			}
			directories <- directory
		}()
	}
	first := <-directories
	for range 3 {
		if other := <-directories; other != first {
			t.Errorf("got folders %s and %s, want one", first, other)
		}
	}
	if builds := strings.Count(progress(), "building hello, goodbye"); builds != 1 {
		t.Errorf("got %d builds, want 1:\n%s", builds, progress())
	}
	greeting, err := exec.Command(filepath.Join(first, "hello")).Output()
	if string(greeting) != "hello" || err != nil {
		t.Errorf("got greeting %q, error %v", greeting, err)
	}
}

func TestGetRebuildsChangedComponents(t *testing.T) {
	cache, _ := newCache(t)
	first, err := cache.Get(t.Context(), greeter)
	must.Succeed(t, err)
	write(t, filepath.Join(cache.Root, "greeter", "main.go"), greeterSource+"\n// Changed.\n")
	second, err := cache.Get(t.Context(), greeter)
	if err != nil || second == first {
		t.Errorf("after a change of the source: got %s, previously %s, error %v", second, first, err)
	}
	tagged := greeter
	tagged.Tags = "seccomp"
	third, err := cache.Get(t.Context(), tagged)
	if err != nil || third == second {
		t.Errorf("after a change of the flags: got %s, previously %s, error %v", third, second, err)
	}
}

func TestGetRetriesFailedBuild(t *testing.T) {
	cache, _ := newCache(t)
	write(t, filepath.Join(cache.Root, "greeter", "main.go"), "package main\n\nfunc main() { nowhere() }\n")
	for range 2 {
		directory, err := cache.Get(t.Context(), greeter)
		if err == nil || !strings.Contains(err.Error(), "undefined: nowhere") {
			t.Fatalf("got %q and error %v, want a compile error", directory, err)
		}
	}
	write(t, filepath.Join(cache.Root, "greeter", "main.go"), greeterSource)
	if _, err := cache.Get(t.Context(), greeter); err != nil {
		t.Error(err)
	}
}

// farewell is another component of the same module.
var farewell = Component{Name: "farewell", Module: "greeter", Packages: []string{"."}, Output: "farewell"}

// lockGreeter makes builds of greeter wait.
func lockGreeter(t *testing.T, cache Cache) (unlock func()) {
	t.Helper()
	must.Succeed(t, os.MkdirAll(cache.Directory, 0o755))
	unlock, err := Lock(t.Context(), filepath.Join(cache.Directory, "greeter.lock"), func() {})
	must.Succeed(t, err)
	return unlock
}

// The build of the first component waits for another process. Meanwhile the others are built.
func TestComponentsAreBuiltAtTheSameTime(t *testing.T) {
	cache, _ := newCache(t)
	unlock := lockGreeter(t, cache)
	var once sync.Once
	cache.Printf = func(format string, values ...any) {
		if strings.HasPrefix(fmt.Sprintf(format, values...), "built farewell") {
			once.Do(unlock)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	programs, err := cache.GetAll(ctx, greeter, farewell)
	if err != nil || programs["greeter"] == "" || programs["farewell"] == "" {
		t.Errorf("got %v, error %v, want two folders", programs, err)
	}
}

func TestFailedBuildInterruptsOthers(t *testing.T) {
	cache, _ := newCache(t)
	unlock := lockGreeter(t, cache)
	defer unlock() // greeter waits for it all the time.
	write(t, filepath.Join(cache.Root, "greeter", "main.go"), "package main\n\nfunc main() { nowhere() }\n")
	if _, err := cache.GetAll(t.Context(), greeter, farewell); err == nil || !strings.Contains(err.Error(), "cannot build farewell") {
		t.Errorf("got error %v, want that of the build that failed", err)
	}
}

// repository returns the root folder of this repository.
func repository(t *testing.T) string {
	t.Helper()
	working, err := os.Getwd()
	must.Succeed(t, err)
	root, err := FindRoot(working)
	must.Succeed(t, err)
	return root
}

// Each component of this repository has a key, and the linker flags of Kubernetes set its version.
func TestComponentsHaveKeysAndVersions(t *testing.T) {
	root := repository(t)
	for _, component := range append([]Component{Kubernetes}, NodeComponents...) {
		if key, err := component.key(root); err != nil || len(key) != 16 {
			t.Errorf("%s: got key %q, error %v", component.Name, key, err)
		}
	}
	goMod := "module example.com/a\n\nrequire k8s.io/kubernetes v1.35.4\n"
	arguments, err := Kubernetes.arguments("out", goMod)
	must.Succeed(t, err)
	for _, stamped := range []string{"gitVersion=v1.35.4", "gitMajor=1 ", "gitMinor=35"} {
		if !strings.Contains(strings.Join(arguments, " "), stamped) {
			t.Errorf("got arguments %q, want %s", arguments, stamped)
		}
	}
	if _, err := Kubernetes.arguments("out", "module example.com/a\n"); err == nil {
		t.Error("got no error for a go.mod without a version")
	}
}

func TestFindRootFailsOutsideRepository(t *testing.T) {
	if root, err := FindRoot(t.TempDir()); err == nil || !strings.Contains(err.Error(), "must be in Conclave's repository") {
		t.Errorf("got %q and error %v, want an error", root, err)
	}
}
