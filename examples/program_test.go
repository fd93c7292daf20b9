package examples

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// runningProgram is a program that can be killed, paused and started again.
type runningProgram struct {
	t           *testing.T
	name        string
	arguments   []string
	environment []string
	output      string
	command     *exec.Cmd
}

func newProgram(t *testing.T, name string, arguments ...string) *runningProgram {
	t.Helper()
	p := &runningProgram{t: t, name: name, arguments: arguments, output: filepath.Join(t.TempDir(), "output")}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			const end = 2000
			text, _ := os.ReadFile(p.output)
			t.Logf("---- end of the output of %s\n%s", name, text[max(0, len(text)-end):])
		}
	})
	return p
}

func (p *runningProgram) start() {
	p.t.Helper()
	output, err := os.OpenFile(p.output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must.Succeed(p.t, err)
	defer output.Close()
	p.command = exec.Command(p.arguments[0], p.arguments[1:]...)
	p.command.Env = append(os.Environ(), p.environment...)
	p.command.Stdout, p.command.Stderr = output, output
	// If the test is killed, so is the program.
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must.Succeed(p.t, p.command.Start())
}

// kill kills the program, also while it is paused, and waits until it has ended.
func (p *runningProgram) kill() {
	if p.command == nil {
		return
	}
	_ = p.command.Process.Kill() // It may have ended.
	err := p.command.Wait()
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() >= 0 {
		p.t.Errorf("%s ended by itself: %v", p.name, err)
	}
	p.command = nil
}

func (p *runningProgram) signal(signal syscall.Signal) {
	p.t.Helper()
	must.Succeed(p.t, p.command.Process.Signal(signal))
}

func (p *runningProgram) text() string {
	p.t.Helper()
	text := must.ReadFile(p.t, p.output)
	return string(text)
}
