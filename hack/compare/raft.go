package main

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// raftElector is a member of a Raft cluster whose state machine is empty.
type raftElector struct {
	spec  *spec
	group int
	raft  *raft.Raft
}

const raftPort = 7600

func raftStarter(tuned bool) starter {
	return func(_ context.Context, s *spec) ([]elector, error) {
		var all []elector
		for i := range s.Groups {
			e := &raftElector{spec: s, group: i}
			if err := e.open(tuned); err != nil {
				return nil, err
			}
			all = append(all, e)
		}
		return all, nil
	}
}

func (e *raftElector) open(tuned bool) error {
	config := raft.DefaultConfig()
	config.LocalID = raft.ServerID(strconv.Itoa(e.spec.Self))
	config.LogOutput = io.Discard
	if tuned {
		config.HeartbeatTimeout, config.ElectionTimeout, config.LeaderLeaseTimeout = 50*time.Millisecond,
			50*time.Millisecond, 50*time.Millisecond
		config.CommitTimeout = 5 * time.Millisecond
	}
	store, err := raftboltdb.NewBoltStore(filepath.Join(e.spec.Folder, groupName(e.group)+".raft"))
	if err != nil {
		return err
	}
	snapshots, err := raft.NewFileSnapshotStore(e.spec.Folder, 1, io.Discard)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", e.address(e.spec.Self))
	if err != nil {
		return err
	}
	// As NewTCPTransport in the documentation.
	transport := raft.NewNetworkTransport(raftStream{listener, e.spec}, 3, 10*time.Second, io.Discard)
	known, err := raft.HasExistingState(store, store, snapshots)
	if err != nil {
		return err
	}
	if e.raft, err = raft.NewRaft(config, emptyMachine{}, store, store, snapshots, transport); err != nil || known {
		return err
	}
	var servers []raft.Server
	for i := range e.spec.Hosts {
		servers = append(servers, raft.Server{ID: raft.ServerID(strconv.Itoa(i)), Address: raft.ServerAddress(e.address(i))})
	}
	err = e.raft.BootstrapCluster(raft.Configuration{Servers: servers}).Error()
	if errors.Is(err, raft.ErrCantBootstrap) {
		return nil // Another member was faster.
	}
	return err
}

// raftStream is the one of raft.NewTCPTransport, with connections from this candidate's address.
type raftStream struct {
	net.Listener

	spec *spec
}

// Dial implements raft.StreamLayer.
func (s raftStream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return s.spec.dialTimeout(string(address), timeout)
}

func (e *raftElector) address(of int) string {
	return net.JoinHostPort(e.spec.Hosts[of], strconv.Itoa(raftPort+e.group))
}

func (e *raftElector) run(ctx context.Context, to *reporter) error {
	changes := make(chan raft.Observation, 100)
	e.raft.RegisterObserver(raft.NewObserver(changes, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	}))
	know := func() {
		_, leader := e.raft.LeaderWithID()
		to.know(parseIndex(string(leader)))
	}
	know()
	for ctx.Err() == nil {
		select {
		case <-changes:
			know()
		case <-e.raft.LeaderCh():
			to.check()
		case <-ctx.Done():
		}
	}
	if e.leads() {
		_ = e.raft.LeadershipTransfer().Error() // Without a follower that can take over, it just ends.
	}
	to.check()
	return e.raft.Shutdown().Error()
}

func (e *raftElector) leads() bool { return e.raft.State() == raft.Leader }

// emptyMachine is a state machine without state.
type emptyMachine struct{}

func (emptyMachine) Apply(*raft.Log) any                  { return nil }
func (emptyMachine) Snapshot() (raft.FSMSnapshot, error)  { return emptyMachine{}, nil }
func (emptyMachine) Restore(content io.ReadCloser) error  { return content.Close() }
func (emptyMachine) Persist(sink raft.SnapshotSink) error { return sink.Close() }
func (emptyMachine) Release()                             {}
