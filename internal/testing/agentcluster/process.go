package agentcluster

import (
	"bytes"
	"cmp"
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

	"golang.org/x/sys/unix"
)

// Agent is a member of the cluster, whether or not its process is running.
type Agent struct {
	Name string
	// Host is the address that the agent listens on and dials from.
	Host string
	// API is the address of the local API.
	API string

	ctx    context.Context
	binary string
	// traces is the folder for traces, or empty.
	traces string
	// config is in a folder of its own, because the agent watches that folder. In a
	// shared folder, every log line of any agent would wake up all agents.
	config string
	log    string
	file   File

	// Stderr, if it isn't nil, replaces the log file from the next start on.
	Stderr *os.File

	mutex sync.Mutex
	// process is nil before the first start.
	process         *process
	unexpectedExits []error
}

// Address returns the address at which the agent accepts peers.
func (a *Agent) Address() string { return a.file.Listen }

// TLS returns the paths of the agent's certificate files.
func (a *Agent) TLS() TLS { return a.file.TLS }

// process is one run of an agent.
type process struct {
	command *exec.Cmd
	// ended is closed when the process has exited and was reaped.
	ended chan struct{}
	// expected: the exit was requested. anyStatus: with whatever status.
	expected, anyStatus bool
}

func newAgent(ctx context.Context, options *Options, name, host, apiPort string) *Agent {
	a := &Agent{
		Name: name, Host: host, API: net.JoinHostPort(host, apiPort), ctx: ctx, binary: options.Binary,
		config: filepath.Join(options.Folder, name, "agent.yaml"), log: filepath.Join(options.Folder, name+".log"),
	}
	if options.traced {
		a.traces = options.traces()
	}
	return a
}

// Binary returns the program of the agent.
func (a *Agent) Binary() string { return a.binary }

// Start starts the agent's process. It first waits for the exit of the previous one.
func (a *Agent) Start() error {
	if err := a.AwaitEnd(); err != nil {
		return err
	}
	log, err := os.OpenFile(a.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot start agent %s: %w", a.Name, err)
	}
	defer log.Close()
	arguments := []string{"--config", a.config}
	if a.traces != "" {
		arguments = append(arguments, "--trace", a.traces)
	}
	command := exec.CommandContext(a.ctx, a.binary, arguments...)
	command.Stdout, command.Stderr = log, cmp.Or(a.Stderr, log)
	// No agent outlives the program that runs the cluster, even if that program is killed. The kernel tracks the thread
	// that started the process. Go ends a thread only if its goroutine exits with the thread locked, which doesn't happen
	// here.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return fmt.Errorf("cannot start agent %s: %w", a.Name, err)
	}
	p := &process{command: command, ended: make(chan struct{})}
	a.mutex.Lock()
	a.process = p
	a.mutex.Unlock()
	go a.waitForExit(p)
	return nil
}

// waitForExit waits for the exit of a process. It records the exit if it was unexpected,
// or if the process failed to exit cleanly when requested.
func (a *Agent) waitForExit(p *process) {
	err := p.command.Wait()
	a.mutex.Lock()
	defer a.mutex.Unlock()
	defer close(p.ended)
	status, ok := p.command.ProcessState.Sys().(syscall.WaitStatus)
	// SIGTERM kills a process that hasn't installed its signal handler yet.
	killed := ok && status.Signaled() && (status.Signal() == syscall.SIGKILL || status.Signal() == syscall.SIGTERM)
	if p.anyStatus || p.expected && (err == nil || killed) {
		return
	}
	if err == nil {
		err = errors.New("with status 0")
	}
	a.unexpectedExits = append(a.unexpectedExits,
		fmt.Errorf("process %d of agent %s ended by itself: %w", p.command.Process.Pid, a.Name, err))
}

func (a *Agent) unexpectedExit() error {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return errors.Join(a.unexpectedExits...)
}

// Kill sends SIGKILL to the process if it is running. It returns the time just before.
func (a *Agent) Kill() (time.Time, error) { return a.signal(syscall.SIGKILL) }

// Terminate sends SIGTERM to the process. AwaitEnd waits for its exit.
func (a *Agent) Terminate() error {
	_, err := a.signal(syscall.SIGTERM)
	return err
}

// End sends a signal by which the process ends, with any status.
func (a *Agent) End(signal syscall.Signal) error {
	a.mutex.Lock()
	if a.process != nil {
		a.process.anyStatus = true
	}
	a.mutex.Unlock()
	_, err := a.signal(signal)
	return err
}

// Stop pauses the process with SIGSTOP until Continue. Its sockets stay open. Stop waits
// until all threads have stopped, and returns the time just before the signal.
func (a *Agent) Stop() (time.Time, error) {
	moment, err := a.signal(syscall.SIGSTOP)
	if err != nil {
		return moment, err
	}
	if pid := a.PID(); pid != 0 {
		if err := awaitStopped(pid); err != nil {
			return moment, fmt.Errorf("cannot wait until agent %s has stopped: %w", a.Name, err)
		}
	}
	return moment, nil
}

// awaitStopped returns when all threads of a child process have stopped, or when the
// process has exited. The kernel stops each thread when it next schedules it: on a busy
// machine, a process answers requests for milliseconds after SIGSTOP was sent.
func awaitStopped(pid int) error {
	for {
		// With WNOWAIT, the exit status remains available to waitForExit.
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECHILD): // waitForExit was faster.
			return nil
		default:
			return err
		}
	}
}

// Continue resumes a paused process.
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
		a.process.expected = true
	}
	moment := time.Now()
	err := a.process.command.Process.Signal(signal)
	if errors.Is(err, os.ErrProcessDone) {
		return moment, nil
	}
	if err != nil {
		return moment, fmt.Errorf("cannot send %s to agent %s: %w", signal, a.Name, err)
	}
	return moment, nil
}

// AwaitEnd waits for the exit of the agent's process. It doesn't request the exit.
func (a *Agent) AwaitEnd() error {
	a.mutex.Lock()
	p := a.process
	a.mutex.Unlock()
	if p == nil {
		return nil
	}
	deadline := time.NewTimer(waitMax)
	defer deadline.Stop()
	select {
	case <-p.ended:
		return nil
	case <-deadline.C:
		return fmt.Errorf("process %d of agent %s hasn't exited after %s", p.command.Process.Pid, a.Name, waitMax)
	}
}

// PID returns the process ID, or 0 if no process is running.
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

// ReadLog returns the agent's log.
func (a *Agent) ReadLog() ([]byte, error) { return os.ReadFile(a.log) }

func (a *Agent) lastLines(count int) []byte {
	written, err := a.ReadLog()
	if err != nil {
		return []byte(err.Error())
	}
	lines := bytes.Split(bytes.TrimSpace(written), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-count):], []byte("\n"))
}
