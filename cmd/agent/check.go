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
	"github.com/conclave-dev/conclave/internal/cli/command"
)

func newCheck() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration and the files that it names",
		Long: `Check a configuration and the files that it names.

All that is wrong is said at once, each with its line, and the exit status is 2.
Otherwise it is 0, also if there are warnings.`,
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
	cmd.Flags().StringVar(path, "config", os.Getenv(configVariable), "the configuration, a YAML file; or in "+configVariable)
	// Whatever the variable says, it isn't the default of those who read the help.
	cmd.Flags().Lookup("config").DefValue = ""
}

// configVariable names the configuration where no flag does: a probe of
// Kubernetes can't put a pod's name in its command, but a variable can have it.
const configVariable = "CONCLAVE_CONFIG"

var errNoConfig = command.UsageErrorf("--config is missing: name the configuration, such as --config agent.yaml")

// load reads a configuration and checks it, files and all.
func load(path string) (*config.Config, error) {
	c, err := read(path)
	if err != nil {
		return nil, err
	}
	return c, c.CheckFiles()
}

// read reads a configuration, and none of the files that it names: a running
// agent has an opinion of its own on those.
func read(path string) (*config.Config, error) {
	if path == "" {
		return nil, errNoConfig
	}
	return config.Load(path)
}

func summarize(w io.Writer, path string, c *config.Config) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is in order: %s in domain %s, peers on %s, API on %s\n", path, c.Self, c.Domain, c.Listen, c.API)
	for i := range c.Groups {
		g := &c.Groups[i]
		fmt.Fprintf(&b, "group %s: %s, %s, version %d of %s\n", g.Name, g.Algorithm, g.Safety.Mode, g.List.Version, ranked(g.List.Members))
	}
	for _, warning := range c.Warnings() {
		fmt.Fprintf(&b, "warning: %s\n", warning)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// ranked names members, highest first, as many as fit on a line.
func ranked(members []config.Member) string {
	const most = 8
	members = slices.SortedStableFunc(slices.Values(members), func(a, b config.Member) int { return cmp.Compare(b.Priority, a.Priority) })
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
