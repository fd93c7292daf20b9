package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/agent/pod"
	"github.com/conclave-dev/conclave/internal/command"
)

// responseTimeout bounds the time of all requests, and maxResponse the size of a
// response in bytes. A table of a thousand processes fits in.
const (
	responseTimeout = 2 * time.Second
	maxResponse     = 4 << 20
)

func newStatus() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print the process status tables of the running agent",
		Long: `Print the process status tables of the agent that runs with a configuration.

The exit status is 0 if the agent is ready and each of its groups has a
coordinator, and 1 otherwise. So the command can be a readiness probe in an image
without curl.`,
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

// agentAddress is the address of an agent's local API: a host with a port, or unix:// with the path of a socket.
type agentAddress string

// findAgent returns the agent that runs with a configuration, or the agent of this pod.
func findAgent(path string) (agentAddress, error) {
	if path == "" && os.Getenv("POD_IP") != "" {
		return agentAddress(cmp.Or(os.Getenv("CONCLAVE_API"), pod.LocalAPI)), nil
	}
	c, err := read(path)
	if err != nil {
		return "", err
	}
	return agentAddress(c.API), nil
}

// printStatus prints the tables of all groups. It returns an error if the agent isn't
// ready or a group has no coordinator.
func printStatus(ctx context.Context, w io.Writer, agent agentAddress) error {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	code, answer, err := agent.get(ctx, "/readyz")
	if err != nil {
		return fmt.Errorf("cannot reach the agent: %w", err)
	}
	var problems []string
	if code != http.StatusOK {
		problems = strings.Split(strings.TrimSpace(string(answer)), "\n")
	}
	var list struct{ Groups []string }
	if err := agent.getJSON(ctx, "/v1/groups", &list); err != nil {
		return err
	}
	for _, name := range list.Groups {
		var s group.Status
		if err := agent.getJSON(ctx, "/v1/groups/"+name+"/status", &s); err != nil {
			return err
		}
		if err := printTable(w, &s); err != nil {
			return err
		}
		if s.Coordinator == "" {
			problems = append(problems, "group "+name+" has no coordinator")
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("not ready: %s", strings.Join(problems, "; "))
	}
	return nil
}

func printTable(w io.Writer, s *group.Status) error {
	fmt.Fprintf(w, "group %s, seen by %s: %s, %s, version %d, term %d\n", s.Group, s.Self, s.Algorithm,
		s.Safety, s.Version, s.Term)
	rows := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(rows, "NAME\tPRIORITY\tSTATUS\tADDRESS\tCONNECTED")
	for _, p := range s.Processes {
		connected := "no"
		switch {
		case p.Name == s.Self && p.Ineligible != "":
			connected = "self, not eligible since " + formatTime(s.IneligibleSince) + ": " + p.Ineligible
		case p.Name == s.Self:
			connected = "self"
		case p.Connected:
			connected = "yes"
		}
		fmt.Fprintf(rows, "%s\t%d\t%s\t%s\t%s\n", p.Name, p.Priority, p.Status, p.Address, connected)
	}
	if err := rows.Flush(); err != nil {
		return err
	}
	for i := range s.Sessions {
		if _, err := fmt.Fprintf(w, "session: %s\n", &s.Sessions[i]); err != nil {
			return err
		}
	}
	return nil
}

func formatTime(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") }

// getJSON decodes a response that must have status 200.
func (r agentAddress) getJSON(ctx context.Context, path string, into any) error {
	code, answer, err := r.get(ctx, path)
	if err == nil && code != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(answer)))
	}
	if err == nil {
		err = json.Unmarshal(answer, into)
	}
	if err != nil {
		return fmt.Errorf("cannot get %s from the agent: %w", path, err)
	}
	return nil
}

func (r agentAddress) get(ctx context.Context, path string) (code int, answer []byte, err error) {
	host, dial := string(r), new(net.Dialer).DialContext
	if socket, ok := config.SocketPath(string(r)); ok {
		host = "localhost"
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	// The client ignores the proxy settings of the environment.
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(response.Body, maxResponse))
	return response.StatusCode, answer, err
}
