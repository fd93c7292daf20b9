//go:build linux

package nodefault

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

const tableName = "conclave_chaos"

// ownerFlag is NFT_TABLE_F_OWNER, which package unix lacks: the kernel removes the table when the socket is closed.
const ownerFlag = 0x2

// table is a table of nftables in a network namespace. It exists as long as the socket.
type table struct{ socket int }

// chain is a chain of rules.
type chain struct {
	name  string
	hook  uint32
	rules []rule
}

func openTable(network string) (*table, error) {
	socket, err := openSocket(network)
	return &table{socket}, err
}

// newNetwork means a network namespace of its own, which ends with the socket.
const newNetwork = ""

// openSocket opens a netlink socket in a network namespace.
func openSocket(network string) (socket int, err error) {
	err = inNetwork(network, func() (err error) {
		if socket, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER); err != nil {
			err = fmt.Errorf("the kernel has no nftables: %w", err)
		}
		return err
	})
	return socket, err
}

// inNetwork calls a function in a network namespace.
func inNetwork(network string, call func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // The goroutine doesn't unlock its thread, which therefore ends with it.
		if unix.Gettid() == unix.Getpid() {
			// The main thread wouldn't end, and its network is that of the process. While this goroutine occupies it, another
			// goroutine gets another thread.
			err := inNetwork(network, call)
			runtime.UnlockOSThread()
			done <- err
			return
		}
		err := enter(network)
		if err == nil {
			err = call()
		}
		done <- err
	}()
	return <-done
}

func enter(network string) error {
	if network == newNetwork {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("cannot create a network namespace: %w", err)
		}
		return nil
	}
	namespace, err := os.Open(network)
	if err != nil {
		return err
	}
	defer namespace.Close()
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil { //nolint:gosec // a file descriptor
		return fmt.Errorf("cannot enter the network %s: %w", network, err)
	}
	return nil
}

// Close removes the table.
func (t *table) Close() error { return unix.Close(t.socket) }

// removeRules removes the rules of all chains.
func (t *table) removeRules() error {
	b := &batch{}
	b.message(unix.NFNL_MSG_BATCH_BEGIN, 0)
	b.message(deleteRule, 0, text(unix.NFTA_RULE_TABLE, tableName))
	b.acknowledgeLast()
	b.message(unix.NFNL_MSG_BATCH_END, 0)
	return send(t.socket, b.bytes)
}

// add adds the table with these chains, in one transaction.
func (t *table) add(chains ...chain) error {
	b := &batch{}
	b.message(unix.NFNL_MSG_BATCH_BEGIN, 0)
	b.message(newTable, unix.NLM_F_CREATE|unix.NLM_F_EXCL, text(unix.NFTA_TABLE_NAME, tableName), number(unix.NFTA_TABLE_FLAGS, ownerFlag))
	for _, c := range chains {
		b.message(newChain, unix.NLM_F_CREATE, c.attributes()...)
		for _, r := range c.rules {
			b.message(newRule, unix.NLM_F_CREATE|unix.NLM_F_APPEND, text(unix.NFTA_RULE_TABLE, tableName), text(unix.NFTA_RULE_CHAIN, c.name),
				nested(unix.NFTA_RULE_EXPRESSIONS, r...))
		}
	}
	b.acknowledgeLast()
	b.message(unix.NFNL_MSG_BATCH_END, 0)
	err := send(t.socket, b.bytes)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("the kernel has no nftables whose rules end with their process, as Linux 5.12 has: %w", err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("another process has a table %s: %w", tableName, err)
	}
	return err
}

func (c *chain) attributes() [][]byte {
	return [][]byte{
		text(unix.NFTA_CHAIN_TABLE, tableName), text(unix.NFTA_CHAIN_NAME, c.name), text(unix.NFTA_CHAIN_TYPE, "filter"),
		nested(unix.NFTA_CHAIN_HOOK, number(unix.NFTA_HOOK_HOOKNUM, c.hook), number(unix.NFTA_HOOK_PRIORITY, 0)),
	}
}

// The types of messages.
const (
	newTable = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWTABLE
	newChain = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWCHAIN
	newRule  = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWRULE

	deleteRule = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELRULE
)

// batch is a transaction.
type batch struct {
	bytes []byte
	last  int // the offset of the last message
}

func (b *batch) message(kind, flags uint16, attributes ...[]byte) {
	b.last = len(b.bytes)
	subsystem := uint16(0) // Messages that begin or end a batch name the subsystem here, instead of in the type.
	if kind < 1<<8 {
		subsystem = unix.NFNL_SUBSYS_NFTABLES
	}
	b.bytes = append(b.bytes, make([]byte, unix.SizeofNlMsghdr)...)
	b.bytes = append(b.bytes, unix.NFPROTO_INET, unix.NFNETLINK_V0)
	b.bytes = binary.BigEndian.AppendUint16(b.bytes, subsystem)
	for _, a := range attributes {
		b.bytes = append(b.bytes, a...)
	}
	header := b.bytes[b.last:]
	binary.NativeEndian.PutUint32(header, uint32(len(header))) //nolint:gosec // messages are short
	binary.NativeEndian.PutUint16(header[4:], kind)
	binary.NativeEndian.PutUint16(header[6:], unix.NLM_F_REQUEST|flags)
}

// acknowledgeLast requests a response to the last message. The kernel responds to messages that fail in any case, in their order.
func (b *batch) acknowledgeLast() {
	flags := b.bytes[b.last+6:]
	binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
}

// setQueue addresses the last message to our queue.
func (b *batch) setQueue() {
	binary.BigEndian.PutUint16(b.bytes[b.last+nfHeaderSize-2:], queueNumber)
}

// send sends a batch and returns the first error.
func send(socket int, bytes []byte) error {
	if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		return err
	}
	if err := unix.Sendto(socket, bytes, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	response := make([]byte, 1<<16)
	n, _, err := unix.Recvfrom(socket, response, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(response[4:]) != unix.NLMSG_ERROR {
		return errors.New("unexpected netlink response, want an acknowledgment")
	}
	if code := int32(binary.NativeEndian.Uint32(response[unix.SizeofNlMsghdr:])); code != 0 { //nolint:gosec // the kernel's type
		return unix.Errno(-code)
	}
	return nil
}
