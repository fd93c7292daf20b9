package main

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// floorElector is connected with all others. The leader is the one with the lowest index that it has a connection with.
type floorElector struct {
	spec  *spec
	mutex sync.Mutex
	alive []bool
}

const floorPort = 7700

func startFloor(_ context.Context, s *spec) ([]elector, error) {
	return []elector{&floorElector{spec: s, alive: make([]bool, len(s.Hosts))}}, nil
}

func (f *floorElector) run(ctx context.Context, to *reporter) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", f.address(f.spec.Self))
	if err != nil {
		return err
	}
	defer listener.Close()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return // ctx has ended.
			}
			go io.Copy(io.Discard, connection) //nolint:errcheck // The peer has ended.
		}
	}()
	f.set(f.spec.Self, true, to)
	for i := range f.spec.Hosts {
		if i != f.spec.Self {
			go f.watch(ctx, i, to)
		}
	}
	<-ctx.Done()
	return nil
}

func (f *floorElector) address(of int) string {
	return net.JoinHostPort(f.spec.Hosts[of], strconv.Itoa(floorPort))
}

// watch keeps a connection to a peer, and reads until it ends.
func (f *floorElector) watch(ctx context.Context, peer int, to *reporter) {
	for ctx.Err() == nil {
		connection, err := f.spec.dialer().DialContext(ctx, "tcp", f.address(peer))
		if err == nil {
			f.set(peer, true, to)
			_, _ = io.Copy(io.Discard, connection) // It ends when the peer ends.
			f.set(peer, false, to)
			_ = connection.Close() // Nothing was written.
		}
		time.Sleep(10 * time.Millisecond) // The peer may be starting.
	}
}

func (f *floorElector) set(peer int, alive bool, to *reporter) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.alive[peer] = alive
	for i, alive := range f.alive {
		if alive {
			to.know(i)
			return
		}
	}
}

func (f *floorElector) leads() bool { return false }
