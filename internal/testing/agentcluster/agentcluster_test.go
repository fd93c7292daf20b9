package agentcluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

// soon is a deadline for what takes milliseconds on a machine that isn't busy.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSurvivorsFindTheNextCoordinator(t *testing.T) {
	for _, tls := range []bool{true, false} {
		t.Run(fmt.Sprintf("TLS %t", tls), func(t *testing.T) {
			troupe := Start(t, Options{Agents: 3, TLS: tls})
			do(t, troupe.Start())
			do(t, troupe.AwaitConnected(soon(t)))
			first, err := troupe.AwaitCoordinator(soon(t))
			do(t, err)
			_, err = troupe.Agent(first).Kill()
			do(t, err)
			do(t, troupe.Agent(first).AwaitEnd())
			if slices.Contains(troupe.Running(), first) {
				t.Errorf("%s runs although it has been killed", first)
			}
			second, err := troupe.AwaitCoordinator(soon(t))
			do(t, err)
			if second == first {
				t.Errorf("%s is coordinator although it has been killed", first)
			}
			do(t, troupe.Restart(first))
			do(t, troupe.AwaitConnected(soon(t)))
		})
	}
}

func TestStoppedAgentAnswersWhenItGoesOn(t *testing.T) {
	troupe := Start(t, Options{Agents: 1})
	do(t, troupe.Start())
	_, err := troupe.AwaitCoordinator(soon(t))
	do(t, err)
	_, err = troupe.Agent("a").Stop()
	do(t, err)
	awaitStopped(t, troupe.Agent("a").PID())
	brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := troupe.Leader(brief, "a"); err == nil {
		t.Error("an agent answers although its process is stopped")
	}
	do(t, troupe.Agent("a").Continue())
	_, err = troupe.AwaitCoordinator(soon(t))
	do(t, err)
}

// awaitStopped returns when all threads of a process have heeded the signal: on a
// busy machine the last one runs on for a while.
func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	ctx := soon(t)
	for {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		do(t, err)
		if !slices.ContainsFunc(threads, func(thread string) bool {
			stat, err := os.ReadFile(thread)
			return err == nil && !bytes.Contains(stat, []byte(") T "))
		}) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal("the process isn't stopped")
		case <-time.After(time.Millisecond):
		}
	}
}

func TestCloseSaysWhoEndedByItself(t *testing.T) {
	troupe, err := New(t.Context(), Options{Binary: os.Getenv(binaryVariable), Folder: t.TempDir(), Agents: 1})
	do(t, err)
	do(t, troupe.WriteConfig("a", func(file *File) { file.Groups = nil; file.Listen = "nonsense" }))
	do(t, troupe.Start())
	do(t, troupe.Agent("a").AwaitEnd())
	if err := troupe.Close(); err == nil || !strings.Contains(err.Error(), "agent a ended by itself") {
		t.Errorf("Close said %v", err)
	}
}

// A datagram that is lost never comes. So a later one, by another way, tells
// when it is time to look.
func TestCutLosesPacketsInOneDirection(t *testing.T) {
	NeedPartitions(t)
	troupe := Start(t, Options{Agents: 3})
	hosts := map[string]net.PacketConn{}
	for _, name := range troupe.Names() {
		socket, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", troupe.Agent(name).Host+":0")
		do(t, err)
		t.Cleanup(func() { socket.Close() })
		hosts[name] = socket
	}
	send := func(from, to, what string) {
		_, err := hosts[from].WriteTo([]byte(what), hosts[to].LocalAddr())
		do(t, err)
	}
	hear := func(at, want string) {
		t.Helper()
		buffer := make([]byte, 100)
		do(t, hosts[at].SetReadDeadline(time.Now().Add(30*time.Second)))
		n, _, err := hosts[at].ReadFrom(buffer)
		do(t, err)
		if got := string(buffer[:n]); got != want {
			t.Errorf("%s heard %q and not %q", at, got, want)
		}
	}
	do(t, troupe.Cut(Cut{"a", "b"}))
	send("a", "b", "lost")
	send("c", "b", "from c")
	hear("b", "from c")
	send("b", "a", "the other direction")
	hear("a", "the other direction")

	do(t, troupe.Partition([]string{"a"}, []string{"b", "c"}))
	send("a", "b", "lost")
	send("c", "a", "lost")
	send("c", "b", "same side")
	hear("b", "same side")

	do(t, troupe.Heal())
	send("a", "b", "healed")
	hear("b", "healed")
	send("c", "a", "healed")
	hear("a", "healed")
}

// TestNothingOutlivesTheTest starts this program once more, which starts a
// troupe and is killed.
func TestNothingOutlivesTheTest(t *testing.T) {
	const variable = "CONCLAVE_TROUPE_DOOMED"
	if os.Getenv(variable) != "" {
		troupe := Start(t, Options{Agents: 1})
		do(t, troupe.Start())
		fmt.Fprintln(os.Stderr, troupe.Agent("a").PID())
		select {}
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
	command.Env = append(os.Environ(), variable+"=1")
	said, err := command.StderrPipe()
	do(t, err)
	do(t, command.Start())
	line, err := bufio.NewReader(said).ReadString('\n')
	do(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	do(t, err)
	do(t, command.Process.Kill())
	do(t, drain(said))
	_ = command.Wait()
	do(t, Await(soon(t), func(context.Context) error {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("process %d is still there: %w", pid, err)
		}
		return nil
	}))
}

func drain(from io.Reader) error {
	_, err := io.Copy(io.Discard, from)
	return err
}
