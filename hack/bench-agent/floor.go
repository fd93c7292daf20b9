package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/conclave-dev/conclave/hack/internal/benchmark"
)

// floor measures the shortest possible failover on this machine for a detector that relies on connections. It uses
// small Go processes and TCP on loopback: the victim is killed; each witness, which is connected to the victim, reads
// the end-of-file and then sends one request to a third process and receives the response. With as many witnesses as
// there are survivors, this is what all survivors need at least. Measurements of the floor alternate with kills of
// agents, so that both run under the same conditions.
type floor struct {
	third   *benchmark.Child
	address string
}

const (
	peerCommand    = "floor-peer"
	witnessCommand = "floor-witness"
)

func newFloor(ctx context.Context) (*floor, error) {
	third, err := benchmark.StartChild(ctx, peerCommand)
	if err != nil {
		return nil, err
	}
	address, err := third.ReadLine()
	return &floor{third: third, address: address}, err
}

func (f *floor) close() { f.third.Kill() }

// round returns the time from just before the kill until the last of the witnesses received its response.
func (f *floor) round(ctx context.Context, witnesses int) (time.Duration, error) {
	victim, err := benchmark.StartChild(ctx, peerCommand)
	if err != nil {
		return 0, err
	}
	defer victim.Kill()
	address, err := victim.ReadLine()
	if err != nil {
		return 0, err
	}
	var all benchmark.Children
	defer all.Kill()
	for range witnesses {
		witness, err := benchmark.StartChild(ctx, witnessCommand, address, f.address)
		if err != nil {
			return 0, err
		}
		all = append(all, witness)
		if _, err := witness.ReadLine(); err != nil {
			return 0, err
		}
	}
	killed, err := monotonic()
	if err != nil {
		return 0, err
	}
	if err := victim.Process.Kill(); err != nil {
		return 0, err
	}
	last := killed
	for _, witness := range all {
		line, err := witness.ReadLine()
		if err != nil {
			return 0, err
		}
		known, err := strconv.ParseInt(line, 10, 64)
		if err != nil {
			return 0, err
		}
		last = max(last, known)
	}
	return time.Duration(last - killed), nil
}

// monotonic reads a clock that all processes of the machine share.
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
				go io.Copy(connection, connection) //nolint:errcheck // The client has closed the connection.
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
		if err := request(peer); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "ready")
	if _, err := victim.Read(make([]byte, 1)); err == nil {
		return errors.New("received data from the victim, want the end of its connection")
	}
	if err := request(third); err != nil {
		return err
	}
	known, err := monotonic()
	if err != nil {
		return err
	}
	fmt.Fprintln(out, known)
	return nil
}

func request(peer net.Conn) error {
	if _, err := peer.Write([]byte{1}); err != nil {
		return err
	}
	_, err := io.ReadFull(peer, make([]byte, 1))
	return err
}
