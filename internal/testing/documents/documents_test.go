package documents

import (
	"fmt"
	"testing"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/testing/expect"
)

func TestCommandsAreFound(t *testing.T) {
	text := "Run `make build`, or `go vet ./...`:\n    a line of a paragraph with `x y`\n\n" +
		"    $ sudo X=1 kubectl get eg -o jsonpath='{.status} | x'   # a comment\n\n" +
		"    for x in a b; do \"$(bin/one up)\" && two \\\n        --flag & done\n" +
		"```go\nmake(x)\n```\n" +
		"```sh\nexec -- three --four\n```\n"
	var got []string
	for _, c := range Parse(text) {
		got = append(got, fmt.Sprintf("%q %t", c.Words, c.Complete))
	}
	want := []string{
		`["make" "build"] false`, `["go" "vet" "./..."] false`, `["x" "y"] false`,
		`["kubectl" "get" "eg" "-o" "jsonpath={.status} | x"] true`,
		`["for" "x" "in" "a" "b"] true`, `["bin/one" "up"] true`, `["two" "--flag"] true`, `["done"] true`,
		`["exec" "--" "three" "--four"] true`, `["three" "--four"] true`,
	}
	expect.Equalf(t, fmt.Sprint(got), fmt.Sprint(want), "commands")
}

func TestBrokenCommandsAreDetected(t *testing.T) {
	for line, broken := range map[string]bool{
		"x --help": false, "x step-down ledger": false, "x step-down ledger --for 3s": false,
		"x step-down ledger --for three": true,
		"x step-down ledger --until 3s":  true, "x step-down": true, "x step-up": true,
		"`x step-down`": false, "`x step-up`": true,
	} {
		root := &cobra.Command{Use: "x", Args: cobra.NoArgs}
		sub := &cobra.Command{Use: "step-down", Args: cobra.ExactArgs(1), Run: func(*cobra.Command, []string) {}}
		sub.Flags().Duration("for", 0, "")
		root.AddCommand(sub)
		if line[0] != '`' {
			line = "    " + line
		}
		c := Parse(line)[0]
		if err := Check(root, c.Words[1:], c.Complete); (err != nil) != broken {
			t.Errorf("%s: got %v, want an error: %t", line, err, broken)
		}
	}
}
