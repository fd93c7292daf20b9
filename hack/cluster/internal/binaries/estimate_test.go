package binaries

import (
	"crypto/rand"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Two components import a common package: app > library > common, and tool > common.
func newTestEstimate(start time.Time) *estimate {
	e := newEstimate()
	e.start = start
	common := unit{Key: "common@v1", Size: 6_000_000}
	e.expect("app", map[string]unit{
		"common":  common,
		"library": {Key: "library@v1", Size: 3_000_000, Imports: []string{"common"}},
		"app":     {Key: "app", Size: 1_000_000, Imports: []string{"library"}},
	})
	e.expect("tool", map[string]unit{
		"common": common,
		"tool":   {Key: "tool", Size: 2_000_000, Imports: []string{"common"}},
	})
	return e
}

func TestEstimateFollowsMeasuredRate(t *testing.T) {
	start := time.Unix(0, 0)
	e := newTestEstimate(start)
	// 12 MB of sources, of which common counts once, and 5 % of each component for linking.
	if want := int64(12_000_000 + 500_000 + 400_000); e.total != want {
		t.Errorf("got a total of %d, want %d", e.total, want)
	}
	after := func(d time.Duration) string { return e.summary(start.Add(d)) }
	checks := []struct{ got, want string }{
		{after(0), "less than a minute left"}, // At the initial rate.
	}
	e.compiling("app", "common")
	// common alone has taken two minutes: the remaining 7 MB take as long.
	checks = append(checks, struct{ got, want string }{after(2 * time.Minute), "46 % done after 2m0s, about 1 min left"})
	e.compiling("app", "library")
	e.compiling("app", "app")
	e.built("app")
	// From now on Go's build cache has common, which isn't reported.
	e.compiling("tool", "tool")
	checks = append(checks, struct{ got, want string }{after(4 * time.Minute), "96 % done after 4m0s, less than a minute left"})
	e.built("tool")
	checks = append(checks, struct{ got, want string }{after(5 * time.Minute), "100 % done after 5m0s, less than a minute left"})
	for _, c := range checks {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestEstimateCountsCachedImportsAsDone(t *testing.T) {
	e := newTestEstimate(time.Now())
	if !e.compiling("app", "app") {
		t.Error("app must be a package")
	}
	if want := int64(10_000_000); e.finished != want || e.compiled != 1_000_000 {
		t.Errorf("got %d finished and %d compiled, want %d and 1000000: app is compiled after its imports", e.finished, e.compiled, want)
	}
	if e.compiling("app", "go: downloading example.com/a v1.0.0") {
		t.Error("a line about a download must not count as a package")
	}
}

// A build reports what it compiles, with an estimate, and an error contains only the compiler's messages.
func TestBuildReportsProgress(t *testing.T) {
	cache, progress := newCache(t)
	// Go's build cache doesn't have this source.
	write(t, cache.Root+"/greeter/main.go", greeterSource+"\n// "+rand.Text()+"\n")
	if _, err := cache.GetAll(t.Context(), greeter); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^building hello, goodbye \(only the first time\): less than a minute left\n  9\d % done after .*\nbuilt greeter in `)
	if got := progress(); !want.MatchString(got) {
		t.Errorf("got\n%s\nwant %s", got, want)
	}
	write(t, cache.Root+"/greeter/main.go", "package main\n\nfunc main() { nowhere() }\n")
	if _, err := cache.GetAll(t.Context(), greeter); err == nil || strings.Contains(err.Error(), "\nexample.com/greeter\n") {
		t.Errorf("got %v, want a compile error without names of packages", err)
	}
	compiled := Component{Name: "greeter", Module: "greeter", Packages: []string{"."}, CompileOnly: true}
	write(t, cache.Root+"/greeter/main.go", greeterSource)
	if got, err := cache.GetAll(t.Context(), compiled); err != nil || got["greeter"] != "" {
		t.Errorf("got %v, error %v, want no folder", got, err)
	}
}
