package decide

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/facts"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// isConnected reports whether a replica is connected to the agent of a pod.
func (m *model) isConnected(r *replica, name string) bool {
	a := m.agentOf(name)
	return a != nil && a.connected && !m.now.Before(r.cutOffUntil)
}

// facts returns what a replica knows.
func (m *model) facts(r *replica) *facts.Facts {
	f := &facts.Facts{
		Now: m.now.Add(r.skew), Group: r.group, Pods: map[string]*corev1.Pod{}, Nodes: m.nodes,
		Agents: map[string]facts.Agent{}, Fresh: map[string]bool{},
	}
	if r.standby {
		f.LeaderGrace = grace
	}
	for name, pod := range m.pods {
		if m.now.Sub(pod.CreationTimestamp.Time) > staleness {
			m.see(r, f, name)
		}
	}
	return f
}

// see adds a pod and its agent to the facts.
func (m *model) see(r *replica, f *facts.Facts, name string) {
	pod := m.pods[name]
	known := r.agents[string(pod.UID)]
	if known.Connected = m.isConnected(r, name); known.Connected {
		a := m.agentOf(name)
		known.Problem, known.Identity = "", a.identity
		if before := known.Report; a.report == nil || before == nil || before.Version != a.report.Version {
			known.AdoptedAt = f.Now
		}
		known.Report = a.report
	} else {
		known.Problem = "refused"
	}
	r.agents[string(pod.UID)] = known
	f.Pods[name], f.Agents[name] = pod, known
}

// command makes agents obey commands.
func (m *model) command(a *Actions) {
	for _, pod := range a.Release {
		m.setFinalizers(pod)
	}
	for _, c := range a.Commands {
		agent := m.agentOf(c.Pod)
		switch {
		case agent == nil || !agent.connected || agent.report == nil:
		case c.Leave == nil:
			m.done["eligibility"]++
			agent.report = new(*agent.report)
			agent.report.Eligible, agent.report.Excluded = c.Eligible, !c.Eligible
		case agent.report.Revision <= c.Leave.Revision:
			m.done["leave"]++
			m.endAgent(m.pods[c.Pod])
			m.startAgent(m.pods[c.Pod], agent.identity)
		}
	}
}

// push makes agents adopt a document.
func (m *model) push(a *Actions) {
	if a.Document == nil {
		return
	}
	d := a.Document.Document
	for _, name := range slices.Concat(a.Document.To, a.Document.First) {
		agent := m.agentOf(name)
		if agent == nil || !agent.connected || agent.report != nil && agent.report.Revision >= d.Revision {
			continue
		}
		next := &control.Report{Pod: name, UID: uid, Eligible: true}
		if agent.report != nil {
			next = new(*agent.report)
			if next.Version > d.Group.Version {
				m.t.Errorf("%s goes back from version %d to %d", name, next.Version, d.Group.Version)
			}
		}
		if next.Version != d.Group.Version {
			agent.adoptions = append(agent.adoptions, adoption{d.Group.Version, m.now})
		}
		next.Version, next.Revision, next.Generation = d.Group.Version, d.Revision, d.Generation
		next.Digest = fmt.Sprint(d.Group.Version)
		agent.report = next
	}
}

// label sets the labels of pods.
func (m *model) label(a *Actions) {
	if a.Traffic == nil {
		return
	}
	for _, l := range slices.Concat(a.Traffic.Demotions, a.Traffic.Labels) {
		now := m.pods[l.Pod.Name]
		if now == nil || now.UID != l.Pod.UID {
			continue
		}
		m.done["labels"]++
		now = now.DeepCopy()
		if now.Labels[v1.RoleLabel("ledger")] = l.Role; l.Role == "" {
			delete(now.Labels, v1.RoleLabel("ledger"))
		}
		m.pods[now.Name] = now
	}
}
