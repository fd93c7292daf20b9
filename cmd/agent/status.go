package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/cli/command"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// responseTimeout is how long an agent may take to answer, and maxResponse how much:
// a table of a thousand processes fits in.
const (
	responseTimeout = 2 * time.Second
	maxResponse     = 4 << 20
)

func newStatus() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Ask the agent that runs here for its process status tables",
		Long: `Ask the agent that runs here with a configuration for its process status tables.

The exit status is 0 if the agent is ready and each of its groups has a
coordinator, and 1 otherwise: a readiness probe for an image without curl.`,
		Example: `  conclave-agent status --config agent.yaml
  kubectl exec ledger-0 --container conclave-agent -- /agent status`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			agent, err := findAgent(path)
			if err != nil {
				return err
			}
			return printStatus(cmd.Context(), cmd.OutOrStdout(), agent)
		},
	}
	addConfig(cmd, &path)
	return cmd
}

// running is the local API of an agent.
type agentAddress string

// here is the agent that runs with a configuration, or without one in this pod.
func findAgent(path string) (agentAddress, error) {
	if path == "" && os.Getenv("POD_IP") != "" {
		return agentAddress(net.JoinHostPort("127.0.0.1", strconv.Itoa(control.LocalPort))), nil
	}
	c, err := read(path)
	if err != nil {
		return "", err
	}
	return agentAddress(c.API), nil
}

// tell writes the tables of all groups, and fails if anything is amiss.
func printStatus(ctx context.Context, w io.Writer, agent agentAddress) error {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	code, answer, err := agent.get(ctx, "/readyz")
	if err != nil {
		return fmt.Errorf("no agent answers: %w", err)
	}
	var amiss []string
	if code != http.StatusOK {
		amiss = strings.Split(strings.TrimSpace(string(answer)), "\n")
	}
	var in struct{ Groups []string }
	if err := agent.getJSON(ctx, "/v1/groups", &in); err != nil {
		return err
	}
	for _, name := range in.Groups {
		var s group.Status
		if err := agent.getJSON(ctx, "/v1/groups/"+name+"/status", &s); err != nil {
			return err
		}
		if err := printTable(w, &s); err != nil {
			return err
		}
		if s.Coordinator == "" {
			amiss = append(amiss, "group "+name+" has no coordinator")
		}
	}
	if len(amiss) > 0 {
		return fmt.Errorf("not ready: %s", strings.Join(amiss, "; "))
	}
	return nil
}

// table writes what an agent knows of a group.
func printTable(w io.Writer, s *group.Status) error {
	fmt.Fprintf(w, "group %s, seen by %s: %s, %s, version %d, term %d\n", s.Group, s.Self, s.Algorithm, s.Safety, s.Version, s.Term)
	rows := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(rows, "NAME\tPRIORITY\tSTATUS\tADDRESS\tCONNECTED")
	for _, p := range s.Processes {
		connected := "no"
		switch {
		case p.Name == s.Self:
			connected = "self"
		case p.Connected:
			connected = "yes"
		}
		fmt.Fprintf(rows, "%s\t%d\t%s\t%s\t%s\n", p.Name, p.Priority, p.Status, p.Address, connected)
	}
	return rows.Flush()
}

// ask takes an answer apart that must be a good one.
func (r agentAddress) getJSON(ctx context.Context, path string, into any) error {
	code, answer, err := r.get(ctx, path)
	if err == nil && code != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(answer)))
	}
	if err == nil {
		err = json.Unmarshal(answer, into)
	}
	if err != nil {
		return fmt.Errorf("ask the agent for %s: %w", path, err)
	}
	return nil
}

func (r agentAddress) get(ctx context.Context, path string) (code int, answer []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+string(r)+path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	// An agent is never behind a proxy, whatever the environment says.
	client := http.Client{Transport: &http.Transport{DialContext: new(net.Dialer).DialContext, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(response.Body, maxResponse))
	return response.StatusCode, answer, err
}
