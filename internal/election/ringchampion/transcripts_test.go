package ringchampion_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/conclave-dev/conclave/internal/election/electiontest/script"
)

func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			group := script.New(nil)
			datadriven.RunTest(t, file, func(_ *testing.T, d *datadriven.TestData) string {
				command := []string{d.Cmd}
				for _, arg := range d.CmdArgs {
					command = append(command, arg.String())
				}
				return group.Run(strings.Join(command, " ") + "\n" + d.Input)
			})
		})
	}
}
