package main

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestHeadlampPluginIsSmall: Headlamp provides all libraries, so the plugin must not contain them.
func TestHeadlampPluginIsSmall(t *testing.T) {
	r := newRelease(t, root)
	r.version = "v0.2.0-rc.1"
	must.Succeed(t, r.writeHeadlamp(t.Context()))
	const name = "conclave-headlamp-0.2.0-rc.1.tar.gz"
	packed := read(t, r, name)
	files := unpack(t, packed)
	const most = 300 << 10
	if size := len(files["conclave/main.js"]); len(files) != 2 || size == 0 || size > most {
		t.Errorf("got %d files, and main.js of %d bytes, want two, and at most %d bytes", len(files), size, most)
	}
	// Headlamp refuses a plugin that doesn't say for which version of its package it is.
	for _, want := range []string{`"name": "conclave"`, `"version": "0.2.0-rc.1"`, `"@kinvolk/headlamp-plugin": "`} {
		if got := string(files["conclave/package.json"]); !strings.Contains(got, want) {
			t.Errorf("got package.json %s\nwant %s in it", got, want)
		}
	}
	var metadata struct {
		Version     string
		Annotations map[string]string
	}
	must.Succeed(t, yaml.Unmarshal(read(t, r, "artifacthub-pkg.yml"), &metadata))
	url, sum := metadata.Annotations["headlamp/plugin/archive-url"], metadata.Annotations["headlamp/plugin/archive-checksum"]
	if metadata.Version != "0.2.0-rc.1" || url != r.download(name) || sum != fmt.Sprintf("sha256:%x", sha256.Sum256(packed)) {
		t.Errorf("got metadata %+v, want those of %s", metadata, r.download(name))
	}
}
