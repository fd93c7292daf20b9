package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"

	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/journal"
)

// Local returns the groups of the agent for the local API.
func (a *Agent) Local() api.Groups { return localAPI{a} }

type localAPI struct{ *Agent }

func (l localAPI) Find(name string) (api.Group, bool) {
	g := l.joined(name)
	return groupView{g}, g != nil
}

// Expects returns false: the settings of all groups in a file are known from the start.
func (localAPI) Expects(string) bool { return false }

// groupView implements api.Group: it returns interfaces where *group.Group returns pointers, and adds what the agent
// knows of the connections that it carries.
type groupView struct{ *joinedGroup }

func (v groupView) Status(ctx context.Context) (group.Status, error) {
	s, err := v.Group.Status(ctx)
	if carried := v.carried.Load(); carried != nil {
		s.Connections = carried.Report()
	}
	return s, err
}

func (v groupView) Journal(ctx context.Context) (journal.Journal, error) {
	j, err := v.Group.Journal(ctx)
	if carried := v.carried.Load(); carried != nil {
		j.Waits = carried.Waits()
	}
	return j, err
}

func (v groupView) Watch() api.Watcher { return v.Group.Watch() }

func (v groupView) OpenSession(ctx context.Context, renews bool) (api.Session, error) {
	s, err := v.Group.OpenSession(ctx, renews)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// ListenLocalAPI opens the listener of the local API.
func ListenLocalAPI(ctx context.Context, address string) (net.Listener, error) {
	path, isSocket := config.SocketPath(address)
	network := "tcp"
	if isSocket {
		network, address = "unix", path
		if err := removeStaleSocket(ctx, path); err != nil {
			return nil, fmt.Errorf("cannot open the local API: %w", err)
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, network, address)
	if err == nil && isSocket {
		// Everyone who reaches the socket may connect. AllowUser decides about the requests.
		if err = os.Chmod(path, 0o666); err != nil { //nolint:gosec // see above
			err = errors.Join(err, listener.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the local API: %w", err)
	}
	return listener, nil
}

// removeStaleSocket removes the socket of an agent that was killed. The socket of a running
// agent, and other files, remain.
func removeStaleSocket(ctx context.Context, path string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		_ = conn.Close() // Nothing was sent.
		return fmt.Errorf("another process listens on %s", path)
	case errors.Is(err, syscall.ECONNREFUSED):
	default:
		return nil // There is no socket, or Listen reports why it can't be used.
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return err
	}
	return os.Remove(path)
}

// AllowUsers returns an AllowUser that accepts these users and that of this process.
func AllowUsers(uids []uint32) func(uid uint32) bool {
	own := uint32(os.Geteuid()) //nolint:gosec // A user ID isn't negative on Linux.
	return func(uid uint32) bool { return uid == own || slices.Contains(uids, uid) }
}
