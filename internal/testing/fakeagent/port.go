package fakeagent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Port is one port on all loopback addresses. Fake agents with different addresses can share
// it, so that each needs only the file descriptors of its connections.
type Port struct {
	listener net.Listener

	mu     sync.Mutex
	agents map[string]*sharedListener
}

// ListenPort listens on a port, 0 for a free one, until ctx ends.
func ListenPort(ctx context.Context, port int) (*Port, error) {
	onlyLoopback := func(_, _ string, raw syscall.RawConn) error {
		var bindErr error
		err := raw.Control(func(fd uintptr) { bindErr = unix.BindToDevice(int(fd), "lo") })
		return errors.Join(err, bindErr)
	}
	listener, err := (&net.ListenConfig{Control: onlyLoopback}).Listen(ctx, "tcp4", fmt.Sprintf("0.0.0.0:%d", port))
	if err != nil {
		return nil, fmt.Errorf("cannot listen on the port of the fake agents: %w", err)
	}
	p := &Port{listener: listener, agents: map[string]*sharedListener{}}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go p.accept()
	return p, nil
}

// Number returns the number of the port.
func (p *Port) Number() int {
	address, _ := p.listener.Addr().(*net.TCPAddr)
	return address.Port
}

// accept passes each connection to the agent with its address. Without one, it closes it.
func (p *Port) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		host, _, _ := net.SplitHostPort(conn.LocalAddr().String()) // It is the address of a TCP connection.
		p.mu.Lock()
		agent := p.agents[host]
		p.mu.Unlock()
		if agent == nil {
			_ = conn.Close()
			continue
		}
		select {
		case agent.accepted <- conn:
		case <-agent.closed:
			_ = conn.Close()
		}
	}
}

// listen returns the listener of an address.
func (p *Port) listen(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.agents[host] != nil {
		return nil, fmt.Errorf("another fake agent has the address %s", host)
	}
	l := &sharedListener{port: p, host: host, accepted: make(chan net.Conn), closed: make(chan struct{})}
	p.agents[host] = l
	return l, nil
}

// sharedListener accepts the connections to one address of a Port.
type sharedListener struct {
	port     *Port
	host     string
	accepted chan net.Conn
	closed   chan struct{}
	closing  sync.Once
}

func (l *sharedListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.accepted:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *sharedListener) Close() error {
	l.closing.Do(func() {
		l.port.mu.Lock()
		delete(l.port.agents, l.host)
		l.port.mu.Unlock()
		close(l.closed)
	})
	return nil
}

func (l *sharedListener) Addr() net.Addr { return l.port.listener.Addr() }
