package agentcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Agent is one member of the troupe, whether its process runs or not.
type Agent struct {
	Name string
	// Host is the address of everything that it listens on and dials from.
	Host string
	// API is where it answers applications.
	API string

	ctx    context.Context
	binary string
	// config has a folder of its own, which the agent watches: in one that they
	// shared, all would be woken by every line in each other's logs.
	config string
	log    string
	file   File

	mutex sync.Mutex
	// process is nil before the first start.
	process *process
	mishaps []error
}

// process is one life of an agent.
type process struct {
	command *exec.Cmd
	// ended is closed when nothing is left of it.
	ended chan struct{}
	// doomed: it was told to end.
	doomed bool
}

func newAgent(ctx context.Context, binary, folder, name, host string) *Agent {
	return &Agent{
		Name: name, Host: host, API: net.JoinHostPort(host, apiPort), ctx: ctx, binary: binary,
		config: filepath.Join(folder, name, "agent.yaml"), log: filepath.Join(folder, name+".log"),
	}
}

// Start starts the agent's process, when the former one has ended.
func (a *Agent) Start() error {
	if err := a.AwaitEnd(); err != nil {
		return err
	}
	log, err := os.OpenFile(a.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", a.Name, err)
	}
	defer log.Close()
	command := exec.CommandContext(a.ctx, a.binary, "--config", a.config)
	command.Stdout, command.Stderr = log, log
	// Nothing outlives the program that runs the troupe, not even if that is killed. The kernel looks at the thread that
	// started the process; Go ends a thread only with a goroutine that never unlocked it, and nobody here locks one.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", a.Name, err)
	}
	p := &process{command: command, ended: make(chan struct{})}
	a.mutex.Lock()
	a.process = p
	a.mutex.Unlock()
	go a.bury(p)
	return nil
}

// bury waits for the end of a process, and remembers it if nobody wanted it, or
// if it was asked to end and didn't do so in order.
func (a *Agent) bury(p *process) {
	err := p.command.Wait()
	a.mutex.Lock()
	defer a.mutex.Unlock()
	defer close(p.ended)
	status, known := p.command.ProcessState.Sys().(syscall.WaitStatus)
	// SIGTERM also ends, at once, a process that has only just started.
	killed := known && status.Signaled() && (status.Signal() == syscall.SIGKILL || status.Signal() == syscall.SIGTERM)
	if p.doomed && (err == nil || killed) {
		return
	}
	if err == nil {
		err = errors.New("with status 0")
	}
	a.mishaps = append(a.mishaps, fmt.Errorf("process %d of agent %s ended by itself: %w", p.command.Process.Pid, a.Name, err))
}

func (a *Agent) mishap() error {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return errors.Join(a.mishaps...)
}

// Kill ends the process with SIGKILL, if it runs, and returns the moment right
// before.
func (a *Agent) Kill() (time.Time, error) { return a.signal(syscall.SIGKILL) }

// Terminate asks the process to end, with SIGTERM; AwaitEnd waits for it.
func (a *Agent) Terminate() error {
	_, err := a.signal(syscall.SIGTERM)
	return err
}

// Stop stops the process with SIGSTOP, and returns the moment right before: it
// does nothing until Continue, but its sockets stay open.
func (a *Agent) Stop() (time.Time, error) { return a.signal(syscall.SIGSTOP) }

// Continue lets a stopped process go on.
func (a *Agent) Continue() error {
	_, err := a.signal(syscall.SIGCONT)
	return err
}

func (a *Agent) signal(signal syscall.Signal) (time.Time, error) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.process == nil {
		return time.Now(), nil
	}
	if signal == syscall.SIGKILL || signal == syscall.SIGTERM {
		a.process.doomed = true
	}
	moment := time.Now()
	err := a.process.command.Process.Signal(signal)
	if errors.Is(err, os.ErrProcessDone) {
		return moment, nil
	}
	if err != nil {
		return moment, fmt.Errorf("send %s to %s: %w", signal, a.Name, err)
	}
	return moment, nil
}

// AwaitEnd returns when nothing is left of the agent's process. It doesn't end
// it.
func (a *Agent) AwaitEnd() error {
	a.mutex.Lock()
	p := a.process
	a.mutex.Unlock()
	if p == nil {
		return nil
	}
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	select {
	case <-p.ended:
		return nil
	case <-deadline.C:
		return fmt.Errorf("process %d of agent %s hasn't ended after %s", p.command.Process.Pid, a.Name, patience)
	}
}

// PID is the number of the process, 0 if none runs.
func (a *Agent) PID() int {
	if !a.running() {
		return 0
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.process.command.Process.Pid
}

func (a *Agent) running() bool {
	a.mutex.Lock()
	p := a.process
	a.mutex.Unlock()
	if p == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (a *Agent) lastLines(count int) []byte {
	written, err := os.ReadFile(a.log)
	if err != nil {
		return []byte(err.Error())
	}
	lines := bytes.Split(bytes.TrimSpace(written), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-count):], []byte("\n"))
}
