package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/conclave-dev/conclave/hack/cluster/internal/binaries"
	"github.com/conclave-dev/conclave/hack/cluster/internal/machine"
	"github.com/conclave-dev/conclave/hack/cluster/internal/pki"
	"github.com/conclave-dev/conclave/hack/cluster/internal/program"
	"github.com/conclave-dev/conclave/hack/cluster/internal/topology"
)

// Up makes the cluster run with at least so many nodes: from nothing, or from whatever is left of it.
func (c Cluster) Up(ctx context.Context, nodes int) error {
	begun := time.Now()
	machines, err := topology.Machines(nodes)
	if err != nil {
		return err
	}
	if _, err := machine.Hierarchies(); err != nil {
		return err
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	programs, err := c.programs(ctx, nodes)
	if err != nil {
		return err
	}
	state, err := c.revive()
	if err != nil {
		return err
	}
	booted, err := c.bootMissing(state, machines, programs)
	if err != nil {
		return err
	}
	if err := c.await(ctx, state, booted); err != nil {
		return err
	}
	if len(booted) == 0 {
		c.Say("cluster %s is up already, with %d nodes", c.Name, len(state.Machines)-1)
	} else {
		c.Say("cluster %s is up with %d nodes, after %.1f s", c.Name, len(state.Machines)-1, time.Since(begun).Seconds())
	}
	return nil
}

// programs are the folders of the cache, by component.
func (c Cluster) programs(ctx context.Context, nodes int) (map[string]string, error) {
	components := []binaries.Component{binaries.Kubernetes}
	if nodes > 0 {
		components = append(components, binaries.NodeComponents...)
	}
	programs := map[string]string{}
	for _, component := range components {
		directory, err := c.Cache.Get(ctx, component)
		if err != nil {
			return nil, err
		}
		programs[component.Name] = directory
	}
	return programs, nil
}

// revive returns the state of a cluster that runs, even if only a part of it does. What isn't that is swept away, and the
// state is a new one.
func (c Cluster) revive() (*State, error) {
	state, err := c.load()
	if err == nil && state.alive() {
		return state, nil
	}
	switch {
	case err == nil:
		c.Say("nothing of cluster %s runs any more (was the computer switched off?): making it anew", c.Name)
	case !errors.Is(err, errNoCluster):
		return nil, err
	}
	if err := c.sweep(state); err != nil {
		return nil, err
	}
	return c.found()
}

// found makes what a new cluster starts with.
func (c Cluster) found() (*State, error) {
	if err := os.MkdirAll(filepath.Join(c.Directory, "bin"), 0o700); err != nil {
		return nil, fmt.Errorf("make the cluster's folder: %w", err)
	}
	// The machines' inits run this program, and "go run" removes it when it's done.
	if err := copySelf(c.executable()); err != nil {
		return nil, fmt.Errorf("keep this program for the machines: %w", err)
	}
	findings, err := machine.Probe(c.Directory)
	if err != nil {
		return nil, err
	}
	if findings.Network != "" {
		return nil, fmt.Errorf("there can't be a cluster here: %s", findings.Network)
	}
	if findings.Proxy != "" {
		c.Say("going on without Services by ClusterIP, and so without the API server's for pods: %s", findings.Proxy)
	}
	if findings.Overlay != "" {
		c.Say("going on with copies of images instead of overlays, which is slow: %s", findings.Overlay)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	state := &State{Port: port, Kernel: program.Kernel{
		Proxy: findings.Proxy == "", Overlay: findings.Overlay == "", OOMScores: findings.OOMScores == "",
	}}
	if state.Authorities.Cluster, err = pki.NewAuthority("conclave-" + c.Name); err != nil {
		return nil, err
	}
	if state.Authorities.ServiceAccount, err = pki.NewAuthority("service-accounts"); err != nil {
		return nil, err
	}
	if err := c.save(state); err != nil {
		return nil, err
	}
	return state, c.writeKubeconfig(state)
}

func (c Cluster) executable() string { return filepath.Join(c.Directory, "bin", "cluster") }

func copySelf(destination string) error {
	source, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer source.Close()
	file, err := os.OpenFile(destination, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := io.Copy(file, source); err != nil {
		return err
	}
	return file.Close()
}

// freePort finds one on the loopback. It is kept for the cluster's life, so that the kubeconfig stays right when the
// control plane is killed and started again; so it is below those that Linux dials from, or somebody may dial from it then.
func freePort() (int, error) {
	const first, count, tries = 10_000, 20_000, 100
	var failed error
	for range tries {
		port := first + rand.IntN(count)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, listener.Close()
		}
		failed = err
	}
	return 0, fmt.Errorf("find a free port: %w", failed)
}

func (s *State) server() string { return fmt.Sprintf("https://127.0.0.1:%d", s.Port) }

func (c Cluster) administrator(state *State) (pki.Pair, error) {
	return pki.Issue(state.Authorities.Cluster, pki.Identity{Name: "administrator", Organizations: []string{"system:masters"}})
}

func (c Cluster) writeKubeconfig(state *State) error {
	client, err := c.administrator(state)
	if err != nil {
		return err
	}
	content, err := pki.Kubeconfig("conclave-"+c.Name, state.server(), state.Authorities.Cluster.Cert, client)
	if err != nil {
		return err
	}
	if err := replaceFile(c.Kubeconfig(), content); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	return nil
}
