package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/hack/internal/benchmark"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// replicas are the replicas of an operator, and the probe that sees whether one of them works.
type replicas struct {
	of     *operator
	env    *environment
	all    []*replica
	prober *prober
	api    kubernetes.Interface
	agents *agentcluster.Cluster // nil with a Lease
	stop   func()
}

// replica is a replica with its programs, as if in one pod.
type replica struct {
	host     string
	programs []*program
}

// program is a process that is started again a second after it has ended. A kubelet waits longer if that happens
// repeatedly.
type program struct {
	arguments, environment []string
	log                    string

	mutex   sync.Mutex
	current *exec.Cmd
	starts  int
}

const restartAfter = time.Second

// newReplicas starts three replicas.
func newReplicas(ctx context.Context, of *operator, adapted bool, file, folder string, env *environment,
	namespace *corev1.Namespace,
) (*replicas, error) {
	r := &replicas{of: of, env: env, stop: func() {}}
	config, err := clientcmd.BuildConfigFromFlags("", env.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	if r.api, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	probing, err := ctrlclient.New(config, ctrlclient.Options{})
	if err != nil {
		return nil, err
	}
	r.prober = &prober{probe: of.probe, client: probing}
	if err := ctrlclient.IgnoreAlreadyExists(probing.Create(ctx, namespace)); err != nil {
		return nil, err
	}
	hosts := env.hosts(candidates)
	if adapted {
		if r.agents, err = newAgents(ctx, "Majority", filepath.Join(folder, "agents"), env.agent, candidates, 1); err != nil {
			return nil, err
		}
		for i, name := range r.agents.Names() {
			hosts[i] = r.agents.Agent(name).Host
		}
	}
	if err := errors.Join(r.connect(hosts), env.count(ctx, of.name, hosts)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	r.stop = func() {
		cancel()
		work.Wait()
	}
	for i, host := range hosts {
		programs, err := r.programs(i, host, file, filepath.Join(folder, strconv.Itoa(i)), config.Host)
		if err != nil {
			r.stop()
			return nil, err
		}
		r.all = append(r.all, &replica{host, programs})
		for _, p := range programs {
			work.Go(func() { p.run(ctx) })
		}
	}
	if err := r.prober.create(ctx); err != nil {
		r.stop()
		return nil, err
	}
	work.Go(func() { r.prober.run(ctx) })
	return r, nil
}

// connect tells the probe where the replicas are. If a program uses no adapter, its agents check it, and carry
// connections to it.
func (r *replicas) connect(hosts []string) error {
	if r.agents == nil {
		for _, host := range hosts {
			r.prober.addresses = append(r.prober.addresses, net.JoinHostPort(host, strconv.Itoa(pickerPort)))
		}
		return nil
	}
	for i, name := range r.agents.Names() {
		address := net.JoinHostPort(hosts[i], strconv.Itoa(servicePort))
		r.prober.addresses = append(r.prober.addresses, address)
		if err := r.agents.WriteConfig(name, func(f *agentcluster.File) {
			if group := &f.Groups[0]; r.of.health != "" {
				group.Application.Probe = &agentcluster.Probe{URL: strings.Replace(r.of.health, "$INDEX", strconv.Itoa(i), 1)}
				group.Service = &agentcluster.Service{Ports: []agentcluster.ServicePort{{Listen: address, Port: pickerPort}}}
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// programs writes the files of a replica, and returns its programs: the agent, if it has one, and the operator.
func (r *replicas) programs(index int, host, file, folder, server string) ([]*program, error) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		return nil, err
	}
	files := map[string]string{"tls.crt": string(certificate), "ca.crt": string(certificate), "tls.key": string(key)}
	// All addresses of the loopback device reach the API server. So each replica uses its own one, whose packets can be
	// dropped.
	text, err := os.ReadFile(r.env.kubeconfig)
	if err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(server, "https://"), ":")
	files["kubeconfig"] = strings.Replace(string(text), "server: "+server,
		"server: https://"+host+":"+port+"\n    tls-server-name: localhost", 1)
	values := strings.NewReplacer("$HOST", host, "$CERTS", folder, "$CONFIG", filepath.Join(folder, "config"),
		"$KUBECONFIG", filepath.Join(folder, "kubeconfig"), "$INDEX", strconv.Itoa(index),
		"$LEASE", strconv.FormatBool(r.agents == nil))
	files["config"] = values.Replace(r.of.config)
	if r.agents != nil {
		files["config"] = strings.NewReplacer(r.of.adaptedConfig...).Replace(files["config"])
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &program{arguments: []string{executable, "replica", "replica-" + strconv.Itoa(index), file}, log: filepath.Join(
		folder, "log")}
	for _, argument := range r.of.arguments {
		p.arguments = append(p.arguments, values.Replace(argument))
	}
	p.environment = append(p.environment, "KUBECONFIG="+filepath.Join(folder, "kubeconfig"))
	for _, variable := range r.of.environment {
		p.environment = append(p.environment, values.Replace(variable))
	}
	if r.agents == nil {
		return []*program{p}, nil
	}
	name := r.agents.Names()[index]
	p.environment = append(p.environment, "CONCLAVE=http://"+r.agents.Agent(name).API)
	agent := &program{arguments: []string{r.env.agent, "--config", filepath.Join(filepath.Dir(folder), "agents", name,
		"agent.yaml")}, log: filepath.Join(folder, "agent.log")}
	return []*program{agent, p}, nil
}

// newReplicaCommand runs a program with a name of its own for this host, which identities in Leases begin with.
func newReplicaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "replica NAME PROGRAM", Hidden: true, Args: cobra.MinimumNArgs(2), DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, arguments []string) error {
			if err := unix.Sethostname([]byte(arguments[0])); err != nil {
				return err
			}
			return syscall.Exec(arguments[1], arguments[1:], os.Environ())
		},
	}
}

// run starts the program again and again until ctx ends.
func (p *program) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := p.once(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "cannot start a replica:", err)
		}
		_ = benchmark.Wait(ctx, restartAfter) // The loop ends with ctx.
	}
}

func (p *program) once(ctx context.Context) error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.CommandContext(ctx, p.arguments[0], p.arguments[1:]...) // Kills it when ctx ends.
	command.Stdout, command.Stderr = log, log
	command.Env = append(os.Environ(), p.environment...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWUTS}
	if err := command.Start(); err != nil {
		return err
	}
	p.mutex.Lock()
	p.current = command
	p.starts++
	p.mutex.Unlock()
	_ = command.Wait() // Its log says why it has ended.
	p.mutex.Lock()
	p.current = nil
	p.mutex.Unlock()
	return nil
}

func (p *program) signal(s syscall.Signal) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.current == nil {
		return nil // It ends or begins just now.
	}
	if err := p.current.Process.Signal(s); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// signal signals all programs of a replica, or only the operator.
func (r *replica) signal(s syscall.Signal, only bool) (err error) {
	programs := r.programs
	if only {
		programs = programs[len(programs)-1:]
	}
	for _, p := range programs {
		err = errors.Join(err, p.signal(s))
	}
	return err
}

// starts returns how often the operator was started in all replicas.
func (r *replicas) starts() (sum int) {
	for _, replica := range r.all {
		p := replica.programs[len(replica.programs)-1]
		p.mutex.Lock()
		sum += p.starts
		p.mutex.Unlock()
	}
	return sum
}

// leader returns the replica that leads, and an identity that no other tenure of a process has.
func (r *replicas) leader(ctx context.Context) (index int, identity string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if r.agents == nil {
		lease, err := r.api.CoordinationV1().Leases(r.of.leaseNamespace).Get(ctx, r.of.lease, metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil {
			return -1, "", errors.Join(err, errors.New("the Lease has no holder"))
		}
		identity = *lease.Spec.HolderIdentity
		if n, err := fmt.Sscanf(identity, "replica-%d", &index); n == 1 && err == nil && index < len(r.all) {
			return index, identity, nil
		}
		return -1, "", fmt.Errorf("the Lease has the holder %q", identity)
	}
	return r.coordinator(ctx)
}

// coordinator asks all agents that answer. The highest term is that of the last tenure.
func (r *replicas) coordinator(ctx context.Context) (index int, identity string, err error) {
	index = -1
	var term uint64
	for _, name := range r.agents.Names() {
		asking, cancel := context.WithTimeout(ctx, 100*time.Millisecond) // It may be frozen.
		state, err := client.Leader(asking, groupName(0), client.At("http://"+r.agents.Agent(name).API))
		cancel()
		if err == nil && state.Coordinator != "" && state.Term > term {
			index, term = slices.Index(r.agents.Names(), state.Coordinator), state.Term
		}
	}
	if index < 0 {
		return -1, "", errors.New("no agent knows a coordinator")
	}
	return index, strconv.FormatUint(term, 10), nil
}
