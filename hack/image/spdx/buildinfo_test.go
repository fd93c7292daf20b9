package spdx

import (
	"runtime/debug"
	"testing"
	"time"
)

func TestReplacedModuleHasNameOfReplacement(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8",
		Main:      debug.Module{Path: "example.com/program"},
		Deps: []*debug.Module{
			{Path: "example.com/old", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/New", Version: "v1.0.1+incompatible", Sum: "h1:x"}},
		},
	}
	document := FromBuildInfo(info, Subject{Name: "program", Version: "v2", Created: time.Unix(0, 0)})
	if len(document.Packages) != 3 {
		t.Fatalf("got %d packages, want the program, the standard library and one module", len(document.Packages))
	}
	got := document.Packages[2]
	if got.Name != "example.com/New" || got.SourceInfo != "go.sum h1:x" {
		t.Errorf("got %+v, want the name and the checksum of the replacement", got)
	}
	if locator := got.ExternalRefs[0].Locator; locator != "pkg:golang/example.com/new@v1.0.1%2Bincompatible" {
		t.Errorf("got package URL %s, want one with an escaped version and a lowercase path", locator)
	}
}

// The modules ./api and ./client of this repository have the program's version.
func TestLocalModuleHasVersionOfProgram(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8",
		Main:      debug.Module{Path: "example.com/program"},
		Deps:      []*debug.Module{{Path: "example.com/program/api", Version: "v0.0.0", Replace: &debug.Module{Path: "./api", Version: "(devel)"}}},
	}
	document := FromBuildInfo(info, Subject{Name: "program", Version: "v2", Created: time.Unix(0, 0)})
	if got := document.Packages[2]; got.Name != "example.com/program/api" || got.VersionInfo != "v2" {
		t.Errorf("got %+v, want the module's own path and the version v2", got)
	}
}

func TestElementIDHasOnlyAllowedCharacters(t *testing.T) {
	if got := elementID("example.com/a_b/v2-v2.0.0+incompatible"); got != "example.com-a-b-v2-v2.0.0-incompatible" {
		t.Errorf("got %q, want only letters, digits, periods and hyphens", got)
	}
}
