package binaries

import (
	"fmt"
	"sync"
	"time"
)

const (
	// initialRate is the number of bytes of source code that two typical cores compile in a second. The estimate begins with it and
	// then follows what is measured: it counts as much as initialTime of measurements.
	initialRate = 300_000
	initialTime = 20 * time.Second

	// linkPercent is the effort of linking a program, as a percentage of compiling all its packages.
	linkPercent = 5
)

// unit is a package to compile.
type unit struct {
	Key     string   // Its import path and version: components that share them compile it once.
	Size    int64    // The size of its sources stands for the effort to compile it.
	Imports []string // Import paths.
}

// estimate tells how much of several builds is done, and how long the rest takes. The go command reports a package when it
// begins to compile it, after it has compiled everything that the package imports. Therefore, what a reported package
// imports is done, even if it wasn't reported because it is in Go's build cache.
//
// Several builds may use an estimate concurrently.
type estimate struct {
	start time.Time

	mu       sync.Mutex
	units    map[string]map[string]unit // By component and import path.
	sizes    map[string]int64           // By key.
	done     map[string]bool            // By key.
	total    int64
	finished int64
	compiled int64 // The part of finished that wasn't in Go's build cache.
}

func newEstimate() *estimate {
	return &estimate{units: map[string]map[string]unit{}, sizes: map[string]int64{}, done: map[string]bool{}}
}

// expect adds the packages of a component, by import path.
func (e *estimate) expect(component string, units map[string]unit) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.units[component] = units
	var size int64
	for _, u := range units {
		size += u.Size
		e.add(u.Key, u.Size)
	}
	e.add(linkKey(component), size*linkPercent/100)
}

func linkKey(component string) string { return "link " + component }

func (e *estimate) add(key string, size int64) {
	if _, known := e.sizes[key]; !known {
		e.sizes[key] = size
		e.total += size
	}
}

// compiling records that the go command reported a package of a component. It returns false if the line isn't a package.
func (e *estimate) compiling(component, path string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	u, known := e.units[component][path]
	if !known {
		return false
	}
	for _, imported := range u.Imports {
		e.finishAll(component, imported)
	}
	if e.finish(u.Key) {
		e.compiled += u.Size
	}
	return true
}

// finishAll records that a package and everything that it imports are done.
func (e *estimate) finishAll(component, path string) {
	u, known := e.units[component][path]
	if !known || !e.finish(u.Key) {
		return
	}
	for _, imported := range u.Imports {
		e.finishAll(component, imported)
	}
}

func (e *estimate) finish(key string) (changed bool) {
	if e.done[key] {
		return false
	}
	e.done[key] = true
	e.finished += e.sizes[key]
	return true
}

// built records that a component is complete.
func (e *estimate) built(component string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, u := range e.units[component] {
		e.finish(u.Key)
	}
	if e.finish(linkKey(component)) {
		e.compiled += e.sizes[linkKey(component)]
	}
}

func (e *estimate) percent() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.percentDone()
}

func (e *estimate) percentDone() int {
	if e.total == 0 {
		return 100
	}
	return int(e.finished * 100 / e.total)
}

// left estimates the duration of the rest, as if none of it were in Go's build cache.
func (e *estimate) left(now time.Time) time.Duration {
	measured := now.Sub(e.start) + initialTime
	rate := (float64(e.compiled) + initialRate*initialTime.Seconds()) / measured.Seconds()
	return time.Duration(float64(e.total-e.finished) / rate * float64(time.Second))
}

// summary is for example "34 % done after 2m10s, about 4 min left". Before anything is compiled, all of it may be in Go's build cache.
func (e *estimate) summary(now time.Time) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	done := fmt.Sprintf("%d %% done after %s, ", e.percentDone(), now.Sub(e.start).Round(time.Second))
	if e.finished == 0 {
		done = ""
	}
	left := e.left(now)
	if left < time.Minute {
		return done + "less than a minute left"
	}
	precision := "about"
	if e.compiled == 0 {
		precision = "at most about"
	}
	return fmt.Sprintf("%s%s %d min left", done, precision, int((left+30*time.Second)/time.Minute))
}
