package fakeagent

import "net"

// counted counts what goes over the connections that it accepts.
type counted struct {
	net.Listener
	agent *Agent
}

func (l counted) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countedConn{conn, l.agent}, nil
}

type countedConn struct {
	net.Conn
	agent *Agent
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.agent.received.Add(int64(n))
	return n, err
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.agent.sent.Add(int64(n))
	return n, err
}

// NetConn is the connection itself, as that of tls.Conn is.
func (c countedConn) NetConn() net.Conn { return c.Conn }
