package binaries

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// greeter is a component that builds in a moment.
var greeter = Component{
	Name: "greeter", Module: "greeter", Packages: []string{"."}, Output: "greeter", Links: []string{"hello", "goodbye"},
}

const greeterSource = `package main

import "os"

func main() { os.Stdout.WriteString(os.Args[0][len(os.Args[0])-5:]) }
`

// newCache is one over a repository that has only the greeter.
func newCache(t *testing.T) (cache Cache, said func() string) {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, "greeter", "main.go"), greeterSource)
	write(t, filepath.Join(root, "greeter", "go.mod"), "module example.com/greeter\n\ngo 1.26.0\n")
	write(t, filepath.Join(root, "greeter", "go.sum"), "")
	var mu sync.Mutex
	var lines []string
	cache = Cache{Root: root, Directory: filepath.Join(t.TempDir(), "cache"), Say: func(format string, values ...any) {
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
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestGetBuildsOnce(t *testing.T) {
	cache, said := newCache(t)
	// All at once, as several commands might.
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
			t.Errorf("built in %s and in %s", first, other)
		}
	}
	if builds := strings.Count(said(), "building hello, goodbye"); builds != 1 {
		t.Errorf("built %d times:\n%s", builds, said())
	}
	greeting, err := exec.Command(filepath.Join(first, "hello")).Output()
	if string(greeting) != "hello" || err != nil {
		t.Errorf("a multi-call binary was called %q, %v", greeting, err)
	}
}

func TestGetBuildsAgainWhatChanged(t *testing.T) {
	cache, _ := newCache(t)
	first, err := cache.Get(t.Context(), greeter)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(cache.Root, "greeter", "main.go"), greeterSource+"\n// Changed.\n")
	second, err := cache.Get(t.Context(), greeter)
	if err != nil || second == first {
		t.Errorf("a change of the source gave %s after %s, %v", second, first, err)
	}
	tagged := greeter
	tagged.Tags = "seccomp"
	third, err := cache.Get(t.Context(), tagged)
	if err != nil || third == second {
		t.Errorf("a change of the build gave %s after %s, %v", third, second, err)
	}
}

// TestGetLeavesNothingHalf: a build that failed says why, and is tried again.
func TestGetLeavesNothingHalf(t *testing.T) {
	cache, _ := newCache(t)
	write(t, filepath.Join(cache.Root, "greeter", "main.go"), "package main\n\nfunc main() { nowhere() }\n")
	for range 2 {
		directory, err := cache.Get(t.Context(), greeter)
		if err == nil || !strings.Contains(err.Error(), "undefined: nowhere") {
			t.Fatalf("a broken program was built in %q, %v", directory, err)
		}
	}
	write(t, filepath.Join(cache.Root, "greeter", "main.go"), greeterSource)
	if _, err := cache.Get(t.Context(), greeter); err != nil {
		t.Error(err)
	}
}

// TestPins: each component of this repository has a key, and those that are stamped have their version.
func TestPins(t *testing.T) {
	working, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	root, err := FindRoot(working)
	if err != nil {
		t.Fatal(err)
	}
	for _, component := range append([]Component{Kubernetes}, NodeComponents...) {
		if key, err := component.key(root); err != nil || len(key) != 16 {
			t.Errorf("%s has the key %q, %v", component.Name, key, err)
		}
	}
	goMod := "module example.com/a\n\nrequire k8s.io/kubernetes v1.35.4\n"
	arguments, err := Kubernetes.arguments("out", goMod)
	if err != nil {
		t.Fatal(err)
	}
	for _, stamped := range []string{"gitVersion=v1.35.4", "gitMajor=1 ", "gitMinor=35"} {
		if !strings.Contains(strings.Join(arguments, " "), stamped) {
			t.Errorf("no %s in %q", stamped, arguments)
		}
	}
	if _, err := Kubernetes.arguments("out", "module example.com/a\n"); err == nil {
		t.Error("a go.mod without a version was good enough")
	}
}

func TestFindRootSaysWhatToDo(t *testing.T) {
	if root, err := FindRoot(t.TempDir()); err == nil || !strings.Contains(err.Error(), "change to its top") {
		t.Errorf("found %q, %v", root, err)
	}
}
