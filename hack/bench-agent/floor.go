package main

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
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// The floor is what nobody who goes by connections can beat on this machine: a
// process is killed; another one, which is connected to it, sees the end of the
// file, and then asks a third one something, once. It is measured with three
// small Go processes and TCP on loopback, between the kills of agents, so that
// both see the same machine.
type floor struct {
	third   *exec.Cmd
	address string
}

const (
	peerCommand    = "floor-peer"
	witnessCommand = "floor-witness"
)

func newFloor(ctx context.Context) (*floor, error) {
	third, said, err := launch(ctx, peerCommand)
	if err != nil {
		return nil, err
	}
	address, err := readLine(said)
	return &floor{third: third, address: address}, err
}

func (f *floor) close() { end(f.third) }

// round returns how long it took from right before the kill until the witness
// had its answer.
func (f *floor) round(ctx context.Context) (time.Duration, error) {
	victim, said, err := launch(ctx, peerCommand)
	if err != nil {
		return 0, err
	}
	defer end(victim)
	address, err := readLine(said)
	if err != nil {
		return 0, err
	}
	witness, said, err := launch(ctx, witnessCommand, address, f.address)
	if err != nil {
		return 0, err
	}
	defer end(witness)
	if _, err := readLine(said); err != nil {
		return 0, err
	}
	moment, err := monotonic()
	if err != nil {
		return 0, err
	}
	if err := victim.Process.Kill(); err != nil {
		return 0, err
	}
	line, err := readLine(said)
	if err != nil {
		return 0, err
	}
	known, err := strconv.ParseInt(line, 10, 64)
	return time.Duration(known - moment), err
}

// launch starts this program once more, with one of its hidden commands.
func launch(ctx context.Context, arguments ...string) (*exec.Cmd, *bufio.Reader, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	command := exec.CommandContext(ctx, executable, arguments...)
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", arguments[0], err)
	}
	return command, bufio.NewReader(said), nil
}

// end ends a process; how it ended says nothing, since it was killed.
func end(command *exec.Cmd) {
	_ = command.Process.Kill()
	_ = command.Wait()
}

func readLine(from *bufio.Reader) (string, error) {
	line, err := from.ReadString('\n')
	return strings.TrimSpace(line), err
}

// monotonic is a clock that all processes of the machine share.
func monotonic() (int64, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return now.Nano(), err
}

func newPeerCommand() *cobra.Command {
	return &cobra.Command{
		Use: peerCommand, Hidden: true, Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			listener, err := new(net.ListenConfig).Listen(command.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			fmt.Fprintln(command.OutOrStdout(), listener.Addr())
			for {
				connection, err := listener.Accept()
				if err != nil {
					return err
				}
				go io.Copy(connection, connection) //nolint:errcheck // Whoever asks has gone; there's nobody to answer.
			}
		},
	}
}

func newWitnessCommand() *cobra.Command {
	return &cobra.Command{
		Use: witnessCommand + " VICTIM THIRD", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, addresses []string) error {
			var dialer net.Dialer
			victim, err := dialer.DialContext(command.Context(), "tcp", addresses[0])
			if err != nil {
				return err
			}
			third, err := dialer.DialContext(command.Context(), "tcp", addresses[1])
			if err != nil {
				return err
			}
			return witness(victim, third, command.OutOrStdout())
		},
	}
}

func witness(victim, third net.Conn, out io.Writer) error {
	for _, peer := range []net.Conn{victim, third} {
		if err := ask(peer); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "ready")
	if _, err := victim.Read(make([]byte, 1)); err == nil {
		return errors.New("the victim said something")
	}
	if err := ask(third); err != nil {
		return err
	}
	known, err := monotonic()
	if err != nil {
		return err
	}
	fmt.Fprintln(out, known)
	return nil
}

func ask(peer net.Conn) error {
	if _, err := peer.Write([]byte{1}); err != nil {
		return err
	}
	_, err := io.ReadFull(peer, make([]byte, 1))
	return err
}
