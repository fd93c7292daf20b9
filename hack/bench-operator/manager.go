package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
	"github.com/conclave-dev/conclave/internal/testing/testnet"
)

// system is the manager's namespace, and managerUser its service account.
const (
	system       = "conclave-system"
	managerUser  = "system:serviceaccount:" + system + ":conclave-manager"
	managersName = "conclave-manager"
)

// manager is the manager as a process of this machine, with the environment that
// its Deployment gives it, and a kubeconfig of its service account.
type manager struct {
	binary, kubeconfig, logFile string
	leaderElect                 bool
	environment                 []string

	process *exec.Cmd
	began   time.Time
	exited  chan struct{}
}

// newManager builds the manager and makes it known to the API server.
func (m *measurer) newManager(ctx context.Context, s *server, deployment *appsv1.Deployment) (*manager, error) {
	p := &manager{
		binary: filepath.Join(m.folder, "manager"), kubeconfig: filepath.Join(m.folder, "manager.kubeconfig"),
		logFile: m.options.logs, leaderElect: m.options.leaderElect,
	}
	if p.logFile == "" {
		p.logFile = filepath.Join(m.folder, "manager.log")
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", p.binary, "./cmd/manager")
	build.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the manager: %w\n%s", err, said)
	}
	kubeconfig, err := s.user(managerUser, "system:serviceaccounts", "system:serviceaccounts:"+system, "system:authenticated")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(p.kubeconfig, kubeconfig, 0o600); err != nil {
		return nil, err
	}
	p.environment = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + m.folder, "KUBECONFIG=" + p.kubeconfig, "POD_NAMESPACE=" + system, "POD_NAME=bench"}
	for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
		if variable.ValueFrom == nil {
			p.environment = append(p.environment, variable.Name+"="+variable.Value)
		}
	}
	return p, nil
}

// start starts it.
func (p *manager) start() error {
	var ports [4]string
	for i := range ports {
		port, err := testnet.FreePort()
		if err != nil {
			return err
		}
		ports[i] = strconv.Itoa(port)
	}
	log, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()                                                                                              // The process has its own.
	p.process = exec.Command(p.binary, "--namespace", system, "--leader-elect="+strconv.FormatBool(p.leaderElect), //nolint:noctx // it is stopped, and only then it's over
		"--metrics-address", "127.0.0.1:"+ports[0], "--health-address", "127.0.0.1:"+ports[1],
		"--webhook-port", ports[2], "--identity-port", ports[3])
	p.process.Env, p.process.Stdout, p.process.Stderr = p.environment, log, log
	p.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.began = time.Now()
	if err := p.process.Start(); err != nil {
		return fmt.Errorf("start the manager: %w", err)
	}
	p.exited = make(chan struct{})
	go func(process *exec.Cmd, exited chan struct{}) {
		_ = process.Wait() // Why it ended, its log says.
		close(exited)
	}(p.process, p.exited)
	return nil
}

// stop ends it as the kubelet does, and returns when it has ended.
func (p *manager) stop(ctx context.Context) error {
	if p.process == nil {
		return nil
	}
	_ = p.process.Process.Signal(syscall.SIGTERM) // It may have ended.
	defer func() { p.process = nil }()
	select {
	case <-p.exited:
		return nil
	case <-time.After(30 * time.Second):
	case <-ctx.Done():
	}
	_ = p.process.Process.Kill()
	<-p.exited
	return errors.New("the manager didn't end within 30 s of being asked to")
}

func (p *manager) usage() (benchmark.Usage, error) { return benchmark.UsageOf(p.process.Process.Pid) }

// await polls for something that isn't measured, for as long as the manager runs.
func (p *manager) await(ctx context.Context, what string, limit time.Duration, met func() (bool, error)) error {
	deadline := time.After(limit)
	for {
		done, err := met()
		if done || err != nil {
			return err
		}
		select {
		case <-p.exited:
			return fmt.Errorf("the manager has ended; its log:\n%s", p.lastWords())
		case <-deadline:
			return fmt.Errorf("not within %s: %s; the end of the manager's log:\n%s", limit, what, p.lastWords())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// lastWords are the last lines of its log.
func (p *manager) lastWords() string {
	const lines = 20
	text, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
