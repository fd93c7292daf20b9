package fakeagent

import "net"

// countingListener counts the bytes on the connections that it accepts.
type countingListener struct {
	net.Listener
	agent *Agent
}

func (l countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countingConn{conn, l.agent}, nil
}

type countingConn struct {
	net.Conn
	agent *Agent
}

func (c countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.agent.received.Add(int64(n))
	return n, err
}

func (c countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.agent.sent.Add(int64(n))
	return n, err
}

// NetConn returns the underlying connection, like tls.Conn.NetConn.
func (c countingConn) NetConn() net.Conn { return c.Conn }
