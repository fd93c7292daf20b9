package layers_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestBinariesLinkOnlyWhatTheyUse asks the go command what the programs in the images link, also by way of other modules.
func TestBinariesLinkOnlyWhatTheyUse(t *testing.T) {
	for program, excluded := range map[string][]string{
		"cmd/manager": {module + "internal/sim/...", module + "internal/election", module + "internal/election/catalog", module + "internal/agent/..."},
		"cmd/agent":   {module + "internal/sim/...", module + "internal/chaos/...", "github.com/google/nftables/...", "k8s.io/...", "sigs.k8s.io/..."},
	} {
		command := exec.CommandContext(t.Context(), "go", "list", "-deps", "./"+program)
		command.Dir, command.Env = "../..", append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0", "GOWORK=off")
		linked, err := command.Output()
		if err != nil {
			t.Fatalf("go list -deps ./%s: %v", program, err)
		}
		for linked := range strings.Lines(string(linked)) {
			for _, pattern := range excluded {
				if linked := strings.TrimSpace(linked); matches(pattern, linked) {
					t.Errorf("%s must not link %s", program, linked)
				}
			}
		}
	}
}
