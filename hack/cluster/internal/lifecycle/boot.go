package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/conclave-dev/conclave/hack/cluster/internal/binaries"
	"github.com/conclave-dev/conclave/hack/cluster/internal/machine"
	"github.com/conclave-dev/conclave/hack/cluster/internal/program"
	"github.com/conclave-dev/conclave/hack/cluster/internal/topology"
	"github.com/conclave-dev/conclave/hack/internal/image"
)

// waitMax bounds each wait. It allows for a slow and busy computer.
const waitMax = 5 * time.Minute

var errInterrupted = errors.New("interrupted: run up to continue, or down to remove the cluster")

// boot is a machine that was started and may not be ready yet.
type boot struct {
	Member

	at time.Time // The start time. It is zero if an earlier command started the machine and was interrupted.
}

// bootMissing starts the machines that aren't running. It returns all machines that aren't ready.
func (c Cluster) bootMissing(state *State, machines []topology.Machine, programs map[string]string) ([]boot, error) {
	if err := c.network().CreateSwitch(); err != nil {
		return nil, err
	}
	var booted []boot
	for _, wanted := range machines {
		member := *state.ensure(wanted)
		switch {
		case !member.Init.Alive():
			started, err := c.boot(state, wanted, programs)
			if err != nil {
				return nil, err
			}
			booted = append(booted, started)
		case !member.Ready:
			booted = append(booted, boot{Member: member})
		}
	}
	return booted, nil
}

// boot starts a machine that isn't running. The machine keeps the files of an earlier run.
func (c Cluster) boot(state *State, wanted topology.Machine, programs map[string]string) (boot, error) {
	c.Printf("starting %s", wanted.Name)
	if err := c.clearCgroup(c.machineCgroup(wanted)); err != nil {
		return boot{}, err
	}
	if err := c.network().Connect(wanted); err != nil {
		return boot{}, err
	}
	specPath, err := c.prepare(state, wanted, programs)
	if err != nil {
		return boot{}, err
	}
	at := time.Now()
	process, err := machine.Boot(c.executable(), specPath)
	if err != nil {
		return boot{}, err
	}
	member := state.ensure(wanted)
	member.Init, member.Ready = process, false
	return boot{*member, at}, c.save(state)
}

// clearCgroup recreates the cgroup. It may contain the pods' cgroups of an earlier run of the machine. It may even contain
// a running machine, if a command was interrupted after it started the machine and before it saved the state.
func (c Cluster) clearCgroup(cgroup string) error {
	hierarchies, err := machine.Hierarchies()
	if err != nil {
		return err
	}
	if err := machine.EmptyCgroup(hierarchies, cgroup); err != nil {
		return err
	}
	if err := machine.RemoveCgroup(hierarchies, cgroup); err != nil {
		return err
	}
	return machine.CreateCgroup(hierarchies, cgroup)
}

// prepare writes the machine's files and returns the path of its spec.
func (c Cluster) prepare(state *State, wanted topology.Machine, programs map[string]string) (string, error) {
	directory := c.machineDirectory(wanted)
	for _, name := range []string{"etc", "lib", "log"} {
		if err := os.MkdirAll(filepath.Join(directory, name), 0o755); err != nil {
			return "", fmt.Errorf("cannot create the folders of %s: %w", wanted.Name, err)
		}
	}
	files, err := filesOf(state, wanted)
	if err != nil {
		return "", err
	}
	for _, file := range files {
		path := filepath.Join(directory, "etc", file.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return "", fmt.Errorf("cannot create the folders of %s: %w", wanted.Name, err)
		}
		if err := os.WriteFile(path, file.Data, 0o600); err != nil {
			return "", fmt.Errorf("cannot configure %s: %w", wanted.Name, err)
		}
	}
	specPath := filepath.Join(directory, "spec.json")
	return specPath, machine.WriteSpec(specPath, c.spec(state, wanted, programs))
}

func filesOf(state *State, wanted topology.Machine) ([]program.File, error) {
	if wanted.IsControlPlane() {
		return program.ControlPlaneFiles(state.CAs)
	}
	return program.NodeFiles(wanted, state.CAs, state.Kernel)
}

func (c Cluster) spec(state *State, wanted topology.Machine, programs map[string]string) machine.Spec {
	directory := c.machineDirectory(wanted)
	spec := machine.Spec{
		Name:   wanted.Name,
		Netns:  c.network().Netns(wanted),
		Cgroup: c.machineCgroup(wanted),
		Log:    machine.InitLog(directory),
		Binds: []machine.Bind{
			{Source: filepath.Join(directory, "etc"), Target: machine.EtcDir},
			{Source: filepath.Join(directory, "lib"), Target: machine.LibDir},
			{Source: filepath.Join(directory, "log"), Target: machine.LogDir},
		},
	}
	components := append([]binaries.Component{binaries.Kubernetes}, binaries.NodeComponents...)
	if wanted.IsControlPlane() {
		components = components[:1]
		spec.Programs = program.ControlPlane()
		spec.Relay = &machine.Relay{
			Listen: fmt.Sprintf("127.0.0.1:%d", state.Port),
			Dial:   fmt.Sprintf("%s:%d", wanted.IP(), topology.APIServerPort),
		}
	} else {
		spec.Programs = program.Node(wanted)
	}
	for _, component := range components {
		spec.Binds = append(spec.Binds, machine.Bind{
			Source: programs[component.Name], Target: filepath.Join(machine.BinDir, component.Name), ReadOnly: true,
		})
	}
	return spec
}

// await returns when the started machines are ready.
func (c Cluster) await(ctx context.Context, state *State, booted []boot) error {
	nodes := slices.DeleteFunc(slices.Clone(booted), func(b boot) bool { return b.Machine.IsControlPlane() })
	for _, node := range nodes { // Meanwhile the API server starts.
		if err := c.loadPause(ctx, node); err != nil {
			return err
		}
	}
	controlPlane, err := state.member(topology.ControlPlaneName)
	if err != nil {
		return err
	}
	if !controlPlane.Init.Alive() {
		c.Printf("the control plane isn't running: start it, otherwise nodes cannot become Ready")
		return nil
	}
	if err := c.awaitReady(ctx, state, *controlPlane, nodes); err != nil {
		return err
	}
	for _, started := range booted {
		state.ensure(started.Machine).Ready = true
	}
	return c.save(state)
}

func (c Cluster) awaitReady(ctx context.Context, state *State, controlPlane Member, nodes []boot) error {
	server, err := newAPI(c.Kubeconfig())
	if err != nil {
		return err
	}
	if err := c.until(ctx, controlPlane, "the API server to become ready", func() (bool, error) {
		err := server.ready(ctx)
		return err == nil, err
	}); err != nil {
		return err
	}
	if err := server.grantDNS(ctx); err != nil {
		return err
	}
	for _, node := range nodes {
		if err := c.until(ctx, node.Member, node.Machine.Name+" to become Ready", func() (bool, error) {
			return server.nodeReady(ctx, node.Machine.Name, node.at)
		}); err != nil {
			return err
		}
	}
	return c.awaitKubelets(ctx, state, server)
}

// awaitKubelets returns when the kubelets accept requests of the API server. A kubelet authorizes such requests with the
// API server. After the control plane was killed, it does so over dead connections until it detects that.
func (c Cluster) awaitKubelets(ctx context.Context, state *State, server *api) error {
	for _, member := range state.Machines {
		if member.Machine.IsControlPlane() || !member.Init.Alive() || !c.network().Plugged(member.Machine) {
			continue
		}
		if err := c.until(ctx, member, "the kubelet of "+member.Machine.Name+" to accept the API server", func() (bool, error) {
			err := server.reachesKubelet(ctx, member.Machine.Name)
			return err == nil, err
		}); err != nil {
			return err
		}
	}
	return nil
}

// until polls until a condition holds. It fails if the machine exits. After a timeout, it returns the last error of poll.
func (c Cluster) until(ctx context.Context, member Member, condition string, poll func() (bool, error)) error {
	deadline := time.Now().Add(waitMax)
	for {
		done, err := poll()
		if done {
			return nil
		}
		switch {
		case ctx.Err() != nil:
			return errInterrupted
		case !member.Init.Alive():
			return fmt.Errorf("%s exited while waiting for %s: %s", member.Machine.Name, condition, c.lastLogLine(member.Machine))
		case time.Now().After(deadline):
			return errors.Join(fmt.Errorf("timed out after %s waiting for %s; see the logs in %s", waitMax, condition,
				filepath.Join(c.machineDirectory(member.Machine), "log")), err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// lastLogLine returns the last line of the log of a machine's init.
func (c Cluster) lastLogLine(of topology.Machine) string {
	path := machine.InitLog(c.machineDirectory(of))
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return fmt.Sprintf("%s (from %s)", lines[len(lines)-1], path)
}

// loadPause waits for the node's containerd and loads the pause image, which each pod needs.
func (c Cluster) loadPause(ctx context.Context, started boot) error {
	if err := c.until(ctx, started.Member, "containerd of "+started.Machine.Name+" to listen", func() (bool, error) {
		connection, err := net.Dial("unix", started.containerd())
		if err != nil {
			return false, err
		}
		return true, connection.Close()
	}); err != nil {
		return err
	}
	directory, err := c.Cache.Get(ctx, binaries.Pause)
	if err != nil {
		return err
	}
	tarball := filepath.Join(c.Directory, "pause.tar")
	if err := image.Write(tarball, program.PauseImage, filepath.Join(directory, binaries.Pause.Output)); err != nil {
		return fmt.Errorf("cannot write the pause image: %w", err)
	}
	return c.importImage(ctx, started.Member, tarball)
}

// containerd returns the path of the socket of a machine's containerd on the host.
func (m Member) containerd() string {
	return fmt.Sprintf("/proc/%d/root%s", m.Init.PID, program.ContainerdSocket)
}

func (c Cluster) importImage(ctx context.Context, member Member, tarball string) error {
	directory, err := c.Cache.Get(ctx, binaries.NodeComponents[0])
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, filepath.Join(directory, "ctr"),
		"--address", member.containerd(), "--namespace", "k8s.io", "images", "import", tarball)
	if output, err := command.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return fmt.Errorf("cannot load %s on %s: %w\n%s", tarball, member.Machine.Name, err, strings.TrimSpace(string(output)))
	}
	return nil
}
