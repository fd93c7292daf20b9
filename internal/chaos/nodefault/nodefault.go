// Package nodefault injects faults into the containers and the network of the node on which it runs, and undoes them by itself. A
// privileged pod of the image conclave-chaos runs it for `kubectl conclave chaos --machines pod`.
//
// The pod reads requests on standard input and answers each on standard output, one JSON object per line. A fault that lasts ends
// when one of these happens first: the request to undo it, its limit, the end of standard input (the caller was killed, or its
// connection broke), or a signal. The kernel itself removes rules that drop packets when the process ends, even by SIGKILL.
package nodefault

import (
	"fmt"
	"time"
)

// The actions of requests.
const (
	// Check asks which actions are possible.
	Check = "check"
	// Kill kills all processes of containers.
	Kill = "kill"
	// Stop stops all processes of containers with SIGSTOP, until it is undone.
	Stop = "stop"
	// Drop drops packets between the pod of a container and addresses, until it is undone.
	Drop = "drop"
	// Delay delays packets between the pod of a container and addresses, in both directions, until it is undone.
	Delay = "delay"
	// Isolate drops all packets between the node and others, until it is undone.
	Isolate = "isolate"
	// Undo undoes the fault that lasts, if there is one.
	Undo = "undo"
)

// Request is a line on standard input.
type Request struct {
	Action string `json:"action"`
	// Containers are the IDs of containers.
	Containers []string `json:"containers,omitempty"`
	// Addresses are the IP addresses that Drop and Delay are about, or for Check and Isolate those of the node.
	Addresses []string `json:"addresses,omitempty"`
	// Percent is the part of the packets that Drop drops. 0 means all.
	Percent int `json:"percent,omitempty"`
	// Delay is the time for which Delay delays each packet.
	Delay time.Duration `json:"delay,omitempty"`
	// Limit is the time after which a fault that lasts ends by itself.
	Limit time.Duration `json:"limit,omitempty"`
}

// minIDLength is shorter than the IDs of containers.
const minIDLength = 32

// CheckContainers returns an error unless all strings can be IDs of containers. Processes are found by these IDs in the names of
// cgroups: a short one could be a part of other names, and an empty one is a part of all.
func CheckContainers(ids []string) error {
	for _, id := range ids {
		if len(id) < minIDLength {
			return fmt.Errorf("%q isn't the ID of a container", id)
		}
	}
	return nil
}

// Response is the line that answers a request.
type Response struct {
	Error string `json:"error,omitempty"`
	// Actions has an element for each action that this version knows: why it isn't possible on this node, or "". Only the response to
	// Check has it.
	Actions map[string]string `json:"actions,omitempty"`
}
