package main

import (
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/hack/internal/gobuild"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// The Dockerfile builds the same images with Docker, so the values that it repeats must be equal.
func TestDockerfileMatches(t *testing.T) {
	dockerfile := string(must.ReadFile(t, "../../Dockerfile"))
	lines := []string{
		"USER " + user,
		`ENTRYPOINT ["/manager"]`,
		`ENTRYPOINT ["/agent"]`,
		"FROM scratch AS manager",
		"FROM scratch AS agent",
		"-trimpath -buildvcs=false -gcflags " + gobuild.CompilerFlags + " -ldflags \"" + gobuild.LinkerFlags + " -X main.version=",
	}
	for key, value := range constantLabels {
		lines = append(lines, key+`="`+value+`"`)
	}
	for _, line := range lines {
		if !strings.Contains(dockerfile, line) {
			t.Errorf("got no %q in the Dockerfile, want one", line)
		}
	}
}
