//go:build !linux

package nodefault

import "errors"

// ThisNode is the node on which this process runs. Faults need Linux.
type ThisNode struct{}

var errNotLinux = errors.New("it needs Linux")

// Check returns the actions with the reason for which they aren't possible.
func (ThisNode) Check(*Request) map[string]string {
	reason := errNotLinux.Error()
	return map[string]string{Kill: reason, Stop: reason, Drop: reason, Delay: reason, Isolate: reason}
}

// Inject returns an error.
func (ThisNode) Inject(*Request) (undo func() error, err error) { return nil, errNotLinux }
