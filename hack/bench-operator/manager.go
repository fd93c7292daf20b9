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

// The manager's namespace, service account and Deployment.
const (
	system      = "conclave-system"
	managerUser = "system:serviceaccount:" + system + ":conclave-manager"
	managerName = "conclave-manager"
)

// manager runs the manager as a process, with the environment of its Deployment and a
// kubeconfig of its service account.
type manager struct {
	binary, logFile string
	environment     []string

	process *exec.Cmd
	began   time.Time
	exited  chan struct{}
}

// newManager builds the manager and creates its user on the API server. Its environment is that of the manifest.
func (r *runner) newManager(ctx context.Context, s *server, deployment *appsv1.Deployment) (*manager, error) {
	p := &manager{binary: filepath.Join(r.folder, "manager"), logFile: filepath.Join(r.folder, "manager.log")}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", p.binary, "./cmd/manager")
	build.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot build the manager: %w\n%s", err, output)
	}
	kubeconfig := filepath.Join(r.folder, "manager.kubeconfig")
	if err := s.addUser(kubeconfig, managerUser, "system:serviceaccounts", "system:serviceaccounts:"+system,
		"system:authenticated"); err != nil {
		return nil, err
	}
	p.environment = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.folder, "KUBECONFIG=" +
		kubeconfig, "POD_NAMESPACE=" + system, "POD_NAME=bench"}
	container := deployment.Spec.Template.Spec.Containers[0]
	for _, variable := range container.Env {
		if variable.ValueFrom == nil {
			p.environment = append(p.environment, variable.Name+"="+variable.Value)
		}
	}
	p.environment = append(p.environment,
		"MEMORY_LIMIT="+strconv.FormatInt(container.Resources.Limits.Memory().Value(), 10))
	if r.options.memoryLimit != "" {
		p.environment = append(p.environment, "GOMEMLIMIT="+r.options.memoryLimit)
	}
	return p, nil
}

// start starts the process.
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
	defer log.Close()                  // The process has its own descriptor.
	p.process = exec.Command(p.binary, //nolint:noctx // stop ends the process
		"--metrics-address", "127.0.0.1:"+ports[0], "--health-address", "127.0.0.1:"+ports[1],
		"--webhook-port", ports[2], "--identity-port", ports[3])
	p.process.Env, p.process.Stdout, p.process.Stderr = p.environment, log, log
	p.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.began = time.Now()
	if err := p.process.Start(); err != nil {
		return fmt.Errorf("cannot start the manager: %w", err)
	}
	p.exited = make(chan struct{})
	go func(process *exec.Cmd, exited chan struct{}) {
		_ = process.Wait() // The log contains the reason of the exit.
		close(exited)
	}(p.process, p.exited)
	return nil
}

// stop sends SIGTERM, as the kubelet does, and returns when the process has exited.
func (p *manager) stop(ctx context.Context) error {
	if p.process == nil {
		return nil
	}
	_ = p.process.Process.Signal(syscall.SIGTERM) // It may have exited.
	defer func() { p.process = nil }()
	select {
	case <-p.exited:
		return nil
	case <-time.After(30 * time.Second):
	case <-ctx.Done():
	}
	_ = p.process.Process.Kill()
	<-p.exited
	return errors.New("the manager didn't exit within 30 s after SIGTERM")
}

func (p *manager) usage() (benchmark.Usage, error) { return benchmark.UsageOf(p.process.Process.Pid) }

// await polls until a condition holds. It fails if the manager exits.
func (p *manager) await(ctx context.Context, condition string, limit time.Duration, holds func() (bool, error)) error {
	deadline := time.After(limit)
	for {
		done, err := holds()
		if done || err != nil {
			return err
		}
		select {
		case <-p.exited:
			return fmt.Errorf("the manager has exited; the end of its log:\n%s", p.logTail())
		case <-deadline:
			return fmt.Errorf("timed out after %s waiting for %s; the end of the manager's log:\n%s",
				limit, condition, p.logTail())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// logTail returns the last lines of the log.
func (p *manager) logTail() string {
	const lines = 20
	text, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
