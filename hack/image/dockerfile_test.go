package main

import (
	"strings"
	"testing"
)

// The Dockerfile makes the same images for those who have Docker: what it repeats must stay the same.
func TestDockerfileAgrees(t *testing.T) {
	dockerfile := string(read(t, "../../Dockerfile"))
	lines := []string{
		"USER " + user,
		`ENTRYPOINT ["/manager"]`,
		`ENTRYPOINT ["/agent"]`,
		"FROM scratch AS manager",
		"FROM scratch AS agent",
		"-trimpath -buildvcs=false -ldflags \"" + linkerFlags + " -X main.version=",
	}
	for key, value := range labels {
		lines = append(lines, key+`="`+value+`"`)
	}
	for _, line := range lines {
		if !strings.Contains(dockerfile, line) {
			t.Errorf("the Dockerfile has no %q", line)
		}
	}
}
