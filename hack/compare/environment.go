package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// environment is what all sets of candidates share.
type environment struct {
	agent string // Conclave's program
	sets  atomic.Int64
	// server is nil if no system needs it. kubeconfig is for its candidates.
	server     *envtest.Environment
	kubeconfig string
	// counted: nft counts the packets of candidates.
	counted bool
}

// startServer starts an API server with etcd, which doesn't sync to the disk.
func (e *environment) startServer(folder string) error {
	if e.server == nil {
		e.server = &envtest.Environment{}
	}
	// The namespace has no route by which the API server could find an address of the machine. Nothing uses this one.
	e.server.ControlPlane.GetAPIServer().Configure().Set("advertise-address", "192.0.2.1").Set("bind-address", "0.0.0.0")
	if _, err := e.server.Start(); err != nil {
		return fmt.Errorf("cannot start an API server: %w", err)
	}
	user, err := e.server.AddUser(envtest.User{Name: "candidate", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return err
	}
	text, err := user.KubeConfig()
	if err != nil {
		return err
	}
	e.kubeconfig = filepath.Join(folder, "kubeconfig")
	return os.WriteFile(e.kubeconfig, text, 0o600)
}

func (e *environment) stop() error {
	if e.server == nil {
		return nil
	}
	return e.server.Stop()
}

func (e *environment) serverFor(s system) string {
	if strings.HasPrefix(s.name, "etcd") {
		return e.server.ControlPlane.Etcd.URL.Host
	}
	return e.kubeconfig
}

// hosts returns the addresses of size candidates. Agents have others.
func (e *environment) hosts(size int) []string {
	number := e.sets.Add(1)
	hosts := make([]string, size)
	for i := range hosts {
		hosts[i] = fmt.Sprintf("127.%d.%d.%d", 251+number/250, 1+number%250, 1+i)
	}
	return hosts
}

// silentRules drop what silent candidates send to others or receive from them. Adding rules again has no effect on
// packets.
const silentRules = `add set ip compare silent { type ipv4_addr; }
add chain ip compare silence { type filter hook input priority -1; }
flush chain ip compare silence
add rule ip compare silence ip saddr @silent ip daddr != @silent drop
add rule ip compare silence ip daddr @silent ip saddr != @silent drop
`

// count makes nft count the packets between these hosts, and between them and servers, with the name of the system.
// What a candidate sends to itself isn't on the wire.
func (e *environment) count(ctx context.Context, name string, hosts []string) error {
	if !e.counted {
		return nil
	}
	name = strings.ReplaceAll(name, "-", "_")
	all := strings.Join(hosts, ", ")
	var rules strings.Builder
	fmt.Fprintf(&rules, "add table ip compare\n"+silentRules+
		"add chain ip compare sent { type filter hook output priority 0; }\nadd counter ip compare %s\n", name)
	for _, host := range hosts {
		fmt.Fprintf(&rules, "add rule ip compare sent ip saddr %s ip daddr %s accept\n", host, host)
	}
	fmt.Fprintf(&rules, "add rule ip compare sent ip saddr { %s } counter name %s accept\nadd rule ip compare sent ip "+
		"daddr { %s } counter name %s accept\n", all, name, all, name)
	return nft(ctx, rules.String())
}

// silence makes the network drop all packets between a candidate and others, or no longer does: change is add or
// delete.
func (e *environment) silence(ctx context.Context, change, host string) error {
	return nft(ctx, change+" element ip compare silent { "+host+" }\n")
}

func nft(ctx context.Context, rules string) error {
	command := exec.CommandContext(ctx, "nft", "-f", "-")
	command.Stdin = strings.NewReader(rules)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w\n%s", err, output)
	}
	return nil
}

// traffic is what was sent in IP packets, including their headers.
type traffic struct{ Packets, Bytes float64 }

// sent returns the traffic of each system so far.
func (e *environment) sent(ctx context.Context) (map[string]traffic, error) {
	all := map[string]traffic{}
	if !e.counted {
		return all, nil
	}
	output, err := exec.CommandContext(ctx, "nft", "-j", "list", "counters", "table", "ip", "compare").Output()
	if err != nil {
		return nil, fmt.Errorf("nft: %w", err)
	}
	var listed struct {
		Nftables []struct {
			Counter *struct {
				Name           string
				Packets, Bytes float64
			}
		}
	}
	if err := json.Unmarshal(output, &listed); err != nil {
		return nil, errors.Join(errors.New("cannot parse the output of nft"), err)
	}
	for _, item := range listed.Nftables {
		if c := item.Counter; c != nil {
			all[strings.ReplaceAll(c.Name, "_", "-")] = traffic{c.Packets, c.Bytes}
		}
	}
	return all, nil
}
