package agent

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/agent/proxy"
)

// listenRetry is the time between attempts to listen for clients. The agent elects meanwhile.
const listenRetry = time.Second

// serveAfterEnd is how long a pod that ends still carries connections to its successor: kube-proxy applies changes of
// endpoints at most once per second.
const serveAfterEnd = 2 * time.Second

// startService carries the connections of a group's clients, if it has a service, until stopService.
func (a *Agent) startService(ctx context.Context, settings *config.Group, g *joinedGroup) {
	g.stopService = func(bool) {}
	g.carried.Store(nil)
	if settings.Service == nil {
		return
	}
	own := ownAddress(settings, a.self)
	service := proxy.Service{
		Service: *settings.Service, Stats: a.options.Metrics.Connections(settings.Name),
		Coordinator: func() proxy.Coordinator { return a.coordinator(g.Group, own) },
	}
	g.carried.Store(service.Stats)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var serving sync.WaitGroup
	serving.Go(func() {
		carrier, err := proxy.Serve(ctx, a.carriers, service)
		for err != nil && ctx.Err() == nil {
			a.setNotServed(g.Name(), "group "+g.Name()+": "+err.Error())
			select {
			case <-time.After(listenRetry):
			case <-ctx.Done():
			}
			carrier, err = proxy.Serve(ctx, a.carriers, service)
		}
		a.setNotServed(g.Name(), "")
		if err == nil {
			a.follow(ctx, g.Group, carrier)
			carrier.Close()
		}
	})
	inPod := settings.UID != ""
	g.stopService = func(processEnds bool) {
		if processEnds && inPod {
			time.Sleep(serveAfterEnd)
		}
		cancel()
		serving.Wait()
	}
}

// follow tells a proxy who is coordinator.
func (a *Agent) follow(ctx context.Context, g *group.Group, carrier *proxy.Proxy) {
	for watcher := g.Watch(); ; carrier.Update() {
		if _, err := watcher.Next(ctx); err != nil { // The agent has left the group, and stops carrying soon.
			<-ctx.Done()
			return
		}
	}
}

// setNotServed sets why the agent doesn't carry connections of a group, "" if it does.
func (a *Agent) setNotServed(name, why string) {
	a.mu.Lock()
	before := a.notServed[name]
	if delete(a.notServed, name); why != "" {
		a.notServed[name] = why
	}
	a.mu.Unlock()
	if why != before {
		a.options.Log.Info("carries connections, unless there is a problem", "group", name, "problem", why)
		a.Refresh()
	}
}

// coordinator returns whom this agent believes to be coordinator at this moment.
func (a *Agent) coordinator(g *group.Group, own netip.Addr) proxy.Coordinator {
	leader := g.Leader()
	c := proxy.Coordinator{Name: leader.Coordinator, Term: leader.Term, Self: leader.Coordinator == a.self}
	if c.Self {
		c.Stops, c.Address = !leader.Leading, own
	} else if c.Name != "" {
		c.Stops, c.Address = leader.HandsOver, a.transport.IP(c.Name)
	}
	return c
}

// ownAddress returns the address of the application beside this agent. A pod has a loopback address of its own. On a
// machine, members may share that, so it is the address at which the others reach the application.
func ownAddress(settings *config.Group, self string) netip.Addr {
	for _, m := range settings.List.Members {
		if at, err := netip.ParseAddrPort(m.Address); err == nil && m.Name == self && settings.UID == "" {
			return at.Addr()
		}
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}
