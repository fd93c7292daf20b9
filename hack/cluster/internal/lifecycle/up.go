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

// Up runs the cluster with at least this number of nodes. It creates a new cluster, or starts the machines that aren't
// running in an existing one.
func (c Cluster) Up(ctx context.Context, nodes int) error {
	begun := time.Now()
	machines, err := topology.Machines(nodes)
	if err != nil {
		return err
	}
	if _, err := machine.Hierarchies(); err != nil {
		return err
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if existing, err := c.load(); err == nil {
		if off, err := existing.switchedOff(); err == nil && !off {
			machines = existing.withMachines(machines)
		}
	}
	programs, err := c.programs(ctx, len(machines)-1)
	if err != nil {
		return err
	}
	state, err := c.loadOrCreate()
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
		c.Printf("cluster %s is already up with %d nodes", c.Name, len(state.Machines)-1)
	} else {
		c.Printf("cluster %s is up with %d nodes after %.1f s", c.Name, len(state.Machines)-1, time.Since(begun).Seconds())
	}
	return nil
}

// programs returns the folders of the programs by component.
func (c Cluster) programs(ctx context.Context, nodes int) (map[string]string, error) {
	components := []binaries.Component{binaries.Kubernetes}
	if nodes > 0 {
		components = append(components, binaries.NodeComponents...)
	}
	return c.Cache.GetAll(ctx, components...)
}

// loadOrCreate returns the state of an existing cluster, even if all of its machines were killed. If there is none, or if the
// computer was switched off, it removes what is left and creates a new cluster.
func (c Cluster) loadOrCreate() (*State, error) {
	state, err := c.load()
	switch {
	case err == nil:
		off, err := state.switchedOff()
		if err != nil {
			return nil, err
		}
		if !off {
			return state, nil
		}
		c.Printf("the computer was switched off after cluster %s was created: creating a new cluster", c.Name)
	case !errors.Is(err, errNoCluster):
		return nil, err
	}
	if err := c.removeAll(state); err != nil {
		return nil, err
	}
	return c.create()
}

// create creates the files and the state of a new cluster.
func (c Cluster) create() (*State, error) {
	if err := os.MkdirAll(filepath.Join(c.Directory, "bin"), 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the cluster's folder: %w", err)
	}
	// The machines' init processes run this program, but "go run" removes it at its end.
	if err := copySelf(c.executable()); err != nil {
		return nil, fmt.Errorf("cannot copy this program for the machines: %w", err)
	}
	findings, err := machine.Probe(c.Directory)
	if err != nil {
		return nil, err
	}
	for _, missing := range []string{findings.Network, findings.Proxy} {
		if missing != "" {
			return nil, fmt.Errorf("cannot run a cluster on this machine: %s", missing)
		}
	}
	if findings.Overlay != "" {
		c.Printf("continuing without overlay file systems; images are copied, which is slow: %s", findings.Overlay)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	boot, err := machine.BootID()
	if err != nil {
		return nil, err
	}
	state := &State{BootID: boot, Port: port, Kernel: program.Kernel{
		Overlay: findings.Overlay == "", OOMScores: findings.OOMScores == "",
	}}
	if state.CAs.Cluster, err = pki.NewCA("conclave-" + c.Name); err != nil {
		return nil, err
	}
	if state.CAs.ServiceAccount, err = pki.NewCA("service-accounts"); err != nil {
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

// freePort finds a free port on the loopback. The cluster uses it permanently, so that the kubeconfig remains valid when the
// control plane restarts. It is below Linux's range of ephemeral ports, so that no connection occupies it meanwhile.
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
	return 0, fmt.Errorf("cannot find a free port: %w", failed)
}

func (c Cluster) writeKubeconfig(state *State) error {
	client, err := pki.Issue(state.CAs.Cluster, pki.Identity{Name: "administrator", Organizations: []string{"system:masters"}})
	if err != nil {
		return err
	}
	content, err := pki.Kubeconfig("conclave-"+c.Name, fmt.Sprintf("https://127.0.0.1:%d", state.Port), state.CAs.Cluster.Cert, client)
	if err != nil {
		return err
	}
	if err := replaceFile(c.Kubeconfig(), content); err != nil {
		return fmt.Errorf("cannot write the kubeconfig: %w", err)
	}
	return nil
}
