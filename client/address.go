package client

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// socketSuffix ends the host of a URL that stands for a Unix socket. The rest is its path, in hexadecimal digits: a
// transport pools its connections by host. The suffix is reserved (RFC 2606), so no host has it.
const socketSuffix = ".socket.invalid"

// hostOf returns the host for an agent's address, as dial expects it.
func hostOf(address string) (string, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
	case u.Scheme == "http" && u.Host != "" && (u.Path == "" || u.Path == "/"):
		return u.Host, nil
	case u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/") && u.Path != "/":
		return hex.EncodeToString([]byte(u.Path)) + socketSuffix, nil
	}
	return "", fmt.Errorf("the agent's address must be an http URL without a path, such as %s, or a Unix socket, "+
		"such as unix:///run/conclave/agent.sock, got %q", defaultAddress, address)
}

// dialFunc connects with a network address.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// toAgent returns a function that connects with an agent by means of connect.
func toAgent(connect dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		host, _, _ := net.SplitHostPort(address) // An invalid address is dialed, which fails.
		if encoded, ok := strings.CutSuffix(host, socketSuffix); ok {
			if path, err := hex.DecodeString(encoded); err == nil {
				return connect(ctx, "unix", string(path))
			}
		}
		return connect(ctx, network, address)
	}
}
