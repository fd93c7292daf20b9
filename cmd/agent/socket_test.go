package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/program"
	"github.com/conclave-dev/conclave/internal/testing/testnet"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// socketAgent is the process of an agent whose local API is a Unix socket.
type socketAgent struct {
	t                      *testing.T
	binary, config, socket string
	stderr                 io.Writer
	command                *exec.Cmd
}

// startSocketAgent starts an agent in a directory that all users may enter.
func startSocketAgent(t *testing.T, uids string) *socketAgent {
	t.Helper()
	must.Succeed(t, program.DependOnProgram(t.Context(), "../..", "./cmd/agent"))
	dir, err := os.MkdirTemp("/tmp", "conclave-")
	must.Succeed(t, err)
	t.Cleanup(func() {
		expect.Succeed(t, os.RemoveAll(dir))
	})
	must.Succeed(t, os.Chmod(dir, 0o755))
	a := &socketAgent{t: t, stderr: t.Output(), config: filepath.Join(dir, "agent.yaml"), socket: filepath.Join(dir,
		"agent.sock")}
	if a.binary, err = agentcluster.Build(t.Context(), dir, false); err != nil {
		t.Fatal(err)
	}
	port, err := testnet.FreePort()
	must.Succeed(t, err)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	text := fmt.Sprintf("self: a\napi: unix://%s\napiUIDs: [%s]\nlisten: %s\ntls: {insecure: true}\ngroups:\n- name: "+
		"ledger\n  members:\n  - {name: a, priority: 10, address: %q}\n",
		a.socket, uids, address, address)
	must.Succeed(t, os.WriteFile(a.config, []byte(text), 0o644))
	a.start()
	return a
}

func (a *socketAgent) start() {
	a.t.Helper()
	a.command = exec.CommandContext(context.Background(), a.binary, "--config", a.config)
	a.command.Stderr = a.stderr
	a.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must.Succeed(a.t, a.command.Start())
	a.t.Cleanup(a.kill)
}

func (a *socketAgent) kill() {
	_ = a.command.Process.Kill() // An error means that it has ended already.
	_ = a.command.Wait()         // The error is the signal.
}

// status runs the command status as a user.
func (a *socketAgent) status(uid int) (string, error) {
	command := exec.CommandContext(a.t.Context(), a.binary, "status", "--config", a.config)
	if uid != os.Getuid() {
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	err := command.Run()
	return output.String(), err
}

// TestSocketServesItsUser: over a Unix socket, also after the agent was killed and has left its socket behind.
func TestSocketServesItsUser(t *testing.T) {
	a := startSocketAgent(t, "")
	for _, round := range []string{"first start", "after a kill"} {
		testwait.NoError(t, func() error {
			text, err := a.status(os.Getuid())
			if err != nil {
				return fmt.Errorf("%s: %w: %s", round, err, text)
			}
			return nil
		})
		state, err := client.LeaderWithPromise(t.Context(), "ledger", 1e9, client.At("unix://"+a.socket))
		if err != nil || !state.Leading || state.Until.IsZero() {
			t.Errorf("%s: got %+v, %v from the client, want leading", round, state, err)
		}
		a.kill()
		if _, err := os.Stat(a.socket); err != nil {
			t.Fatalf("%s: want the killed agent to leave its socket: %v", round, err)
		}
		a.start()
	}
}

func TestSecondAgentCannotTakeSocket(t *testing.T) {
	a := startSocketAgent(t, "")
	testwait.Until(t, "the agent responds", func() bool { _, err := a.status(os.Getuid()); return err == nil })
	second := exec.CommandContext(t.Context(), a.binary, "--config", a.config)
	config := must.ReadFile(t, a.config)
	other := filepath.Join(t.TempDir(), "agent.yaml") // It has another state directory.
	must.Succeed(t, os.WriteFile(other, config, 0o600))
	second.Args[2] = other
	output, err := second.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "another process listens on "+a.socket) {
		t.Errorf("got %v: %s", err, output)
	}
}

// TestSocketRefusesOtherUsers, unless the configuration allows them.
func TestSocketRefusesOtherUsers(t *testing.T) {
	need.Root(t, "becomes another user")
	const other = 54321
	for uids, want := range map[string]string{
		"":      "user 54321 may not use this API",
		"1, 2":  "user 54321 may not use this API",
		"54321": "group ledger, seen by a",
	} {
		a := startSocketAgent(t, uids)
		testwait.Until(t, "the agent responds", func() bool { _, err := a.status(0); return err == nil })
		if text, err := a.status(other); !strings.Contains(text, want) || strings.HasPrefix(want, "group") != (err == nil) {
			t.Errorf("apiUIDs [%s]: got %v: %s, want %s", uids, err, text, want)
		}
		a.kill()
	}
}
