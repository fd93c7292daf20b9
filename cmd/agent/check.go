package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/election/memberlist"
)

func newCheck() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration and the files that it refers to",
		Long: `Check a configuration and the files that it refers to.

The command prints all errors with their fields and exits with status 2. If there
are no errors, it exits with status 0, even if there are warnings.`,
		Example: `  conclave-agent check --config agent.yaml`,
		Args:    command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := load(path)
			if err != nil {
				return err
			}
			return summarize(cmd.OutOrStdout(), path, c)
		},
	}
	addConfig(cmd, &path)
	return cmd
}

func addConfig(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "config", os.Getenv(configVariable),
		"the configuration, a YAML file; defaults to $"+configVariable)
	// The help must not depend on the value of the variable.
	cmd.Flags().Lookup("config").DefValue = ""
}

// configVariable is the environment variable with the path of the configuration, used if the flag is missing: the
// command of a Kubernetes probe cannot contain the name of the pod, but the value of a variable can.
const configVariable = "CONCLAVE_CONFIG"

var errNoConfig = command.UsageErrorf("--config must be a configuration, such as --config agent.yaml")

// load reads a configuration and checks it together with the files that it refers to.
func load(path string) (*config.Config, error) {
	c, err := read(path)
	if err != nil {
		return nil, err
	}
	return c, c.CheckFiles()
}

// read reads a configuration without the files that it refers to.
func read(path string) (*config.Config, error) {
	if path == "" {
		return nil, errNoConfig
	}
	return config.Load(path)
}

func summarize(w io.Writer, path string, c *config.Config) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is valid: %s in domain %s, peers on %s, API on %s\n", path, c.Self, c.Domain, c.Listen, c.API)
	for i := range c.Groups {
		g := &c.Groups[i]
		fmt.Fprintf(&b, "group %s: %s, %s, version %d of %s\n", g.Name, g.Algorithm, g.Safety.Mode,
			g.List.Version, ranked(g.List.Members))
	}
	for _, warning := range c.Warnings() {
		fmt.Fprintf(&b, "warning: %s\n", warning)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// ranked lists as many members as fit on a line, by descending priority.
func ranked(members []memberlist.Member) string {
	const most = 8
	members = slices.SortedStableFunc(slices.Values(members),
		func(a, b memberlist.Member) int { return cmp.Compare(b.Priority, a.Priority) })
	var words []string
	for i, m := range members {
		if i == most {
			words = append(words, fmt.Sprintf("and %d more", len(members)-most))
			break
		}
		words = append(words, fmt.Sprintf("%s (%d)", m.Name, m.Priority))
	}
	return strings.Join(words, ", ")
}
