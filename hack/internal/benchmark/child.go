package benchmark

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Child is another process of this program.
type Child struct {
	*exec.Cmd

	output *bufio.Reader
}

// StartChild runs one of this program's hidden commands in another process, which ends with this one at the latest.
func StartChild(ctx context.Context, arguments ...string) (*Child, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, executable, arguments...)
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", arguments[0], err)
	}
	return &Child{command, bufio.NewReader(output)}, nil
}

// ReadLine returns the next line that the process prints.
func (c *Child) ReadLine() (string, error) {
	line, err := c.output.ReadString('\n')
	return strings.TrimSpace(line), err
}

// Children are processes that end together.
type Children []*Child

// Kill kills all of them.
func (c *Children) Kill() {
	for _, child := range *c {
		child.Kill()
	}
}

// Kill kills the process. Its exit status doesn't matter.
func (c *Child) Kill() {
	_ = c.Process.Kill()
	_ = c.Wait()
}
