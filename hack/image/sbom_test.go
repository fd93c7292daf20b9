package main

import (
	"runtime/debug"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// A replaced module has the name of its replacement. The modules ./api and ./client of this repository have the program's version.
func TestModulesOfSBOM(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8", Main: debug.Module{Path: "example.com/program"},
		Deps: []*debug.Module{
			{
				Path: "example.com/old", Version: "v1.0.0",
				Replace: &debug.Module{Path: "example.com/a_New", Version: "v1.0.1+incompatible", Sum: "h1:x"},
			},
			{Path: "example.com/program/api", Version: "v0.0.0", Replace: &debug.Module{Path: "./api", Version: "(devel)"}},
		},
	}
	r := recipe{}
	r.Package, r.Version = "./cmd/program", "v2"
	packages := r.sbom(info, "0", "sha256:1")["packages"].([]object)
	must.Equalf(t, len(packages), 4, "packages (the program, the standard library and two modules)")
	got := packages[2]
	if got["name"] != "example.com/a_New" || got["sourceInfo"] != "go.sum h1:x" ||
		got["SPDXID"] != "SPDXRef-Module-example.com-a-New-v1.0.1-incompatible" {
		t.Errorf("got %v, want the name and the checksum of the replacement, and an ID of letters, digits, periods and hyphens", got)
	}
	locator := got["externalRefs"].([]object)[0]["referenceLocator"]
	if locator != "pkg:golang/example.com/a_new@v1.0.1%2Bincompatible" {
		t.Errorf("got package URL %s, want one with an escaped version and a lowercase path", locator)
	}
	if got := packages[3]; got["name"] != "example.com/program/api" || got["versionInfo"] != "v2" {
		t.Errorf("got %v, want the module's own path and the version v2", got)
	}
}
