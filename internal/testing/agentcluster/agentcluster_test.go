package agentcluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

func TestMain(m *testing.M) { Main(m) }

func TestCloseReportsUnexpectedExits(t *testing.T) {
	cluster, err := New(t.Context(), Options{Binary: os.Getenv(binaryVariable), Folder: t.TempDir(), Agents: 1})
	must.Succeed(t, err)
	must.Succeed(t, cluster.WriteConfig("a", func(file *File) { file.Groups = nil; file.Listen = "nonsense" }))
	must.Succeed(t, cluster.Start())
	must.Succeed(t, cluster.Agent("a").AwaitEnd())
	expect.ErrorContainsf(t, cluster.Close(), "agent a ended by itself", "Close after a ended by itself")
}

// A dropped datagram never arrives. A later datagram on another path marks the time at which it would have arrived.
func TestCutDropsPacketsInOneDirection(t *testing.T) {
	NeedPartitions(t)
	cluster := Start(t, Options{Agents: 3})
	hosts := map[string]net.PacketConn{}
	for _, name := range cluster.Names() {
		socket, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", cluster.Agent(name).Host+":0")
		must.Succeed(t, err)
		t.Cleanup(func() { socket.Close() })
		hosts[name] = socket
	}
	send := func(from, to, text string) {
		_, err := hosts[from].WriteTo([]byte(text), hosts[to].LocalAddr())
		must.Succeed(t, err)
	}
	receive := func(at, want string) {
		t.Helper()
		buffer := make([]byte, 100)
		must.Succeed(t, hosts[at].SetReadDeadline(time.Now().Add(testwait.Limit)))
		n, _, err := hosts[at].ReadFrom(buffer)
		must.Succeed(t, err)
		expect.Equalf(t, string(buffer[:n]), want, "%s received", at)
	}
	must.Succeed(t, cluster.Cut(Cut{"a", "b"}))
	send("a", "b", "lost")
	send("c", "b", "from c")
	receive("b", "from c")
	send("b", "a", "the other direction")
	receive("a", "the other direction")

	must.Succeed(t, cluster.Partition([]string{"a"}, []string{"b", "c"}))
	send("a", "b", "lost")
	send("c", "a", "lost")
	send("c", "b", "same side")
	receive("b", "same side")

	must.Succeed(t, cluster.Heal())
	send("a", "b", "healed")
	receive("b", "healed")
	send("c", "a", "healed")
	receive("a", "healed")
}

// The test runs this test binary again. The second process starts a cluster and is killed.
func TestAgentsEndWithTheTestProcess(t *testing.T) {
	const variable = "CONCLAVE_TEST_PARENT"
	if os.Getenv(variable) != "" {
		cluster := Start(t, Options{Agents: 1})
		must.Succeed(t, cluster.Start())
		fmt.Fprintln(os.Stderr, cluster.Agent("a").PID())
		select {}
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
	command.Env = append(os.Environ(), variable+"=1", "TMPDIR="+t.TempDir()) // What is killed removes no files.
	stderr, err := command.StderrPipe()
	must.Succeed(t, err)
	must.Succeed(t, command.Start())
	line, err := bufio.NewReader(stderr).ReadString('\n')
	must.Succeed(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	must.Succeed(t, err)
	must.Succeed(t, command.Process.Kill())
	_, err = io.Copy(io.Discard, stderr)
	must.Succeed(t, err)
	_ = command.Wait()
	must.Succeed(t, Await(testwait.Context(t), func(context.Context) error {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("process %d still exists: %w", pid, err)
		}
		return nil
	}))
}
