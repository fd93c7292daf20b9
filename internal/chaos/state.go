package chaos

import (
	"fmt"
	"slices"
	"strings"
)

// State is the state of a group, as seen by the agents, the API server and the operator, or of another leader and its
// candidates.
type State struct {
	// Members is the number of members that must be up.
	Members int
	// Preempts: the member with the highest priority takes over from a healthy coordinator.
	Preempts bool
	// Coordinator and Term are those in the group's status. Of another leader, Coordinator is the pod that leads.
	Coordinator string
	Term        uint64
	Rows        []Row
	Pods        []PodState
	// HasService: the group has a Service, which routes to Endpoints.
	HasService bool
	Endpoints  []string
	// ByClaims: this isn't a group, and the claims of the pods say which one leads. If none does, Vacant may say why.
	ByClaims bool
	Vacant   string
}

// Row is a row of the process status table.
type Row struct {
	Pod      string
	Priority int32
	Up       bool
	Eligible bool
	// HeldBack: its tenures were short, so a lower member may lead for some minutes.
	HeldBack bool
	// Witness: it is a pod of the operator, and none of the group.
	Witness bool
	Reason  string
}

// PodState is a pod of the group. Pods that have finished aren't part of the state.
type PodState struct {
	Agent

	IP, Node    string
	Ready       bool
	Terminating bool
	Role        string
	// View is the last change that its agent reported. It is nil if the agent can't be observed.
	View *Change
	// Said is the last claim since the fault, and Silence is why there is none, if there should be one.
	Said    *Claim
	Silence string
}

// The names of the invariants.
const (
	OneCoordinator = "one coordinator"
	OneLeader      = "one leader"
	Growing        = "terms and tokens only grow"
	Failover       = "another member is elected"
	Recovery       = "all members recover"
	Highest        = "the highest eligible member leads"
	Agreement      = "agents and status agree"
	Labels         = "labels follow"
	Service        = "the Service follows"
	Workload       = "the workload's invariant"
)

// Problem is something that contradicts an invariant.
type Problem struct {
	Invariant string `json:"invariant"`
	Detail    string `json:"detail"`
}

func (p Problem) String() string { return p.Invariant + ": " + p.Detail }

func problem(invariant, format string, args ...any) Problem {
	return Problem{invariant, fmt.Sprintf(format, args...)}
}

// Problems returns what is different from the state in which a group without faults settles. It is empty if the group
// has settled.
func (s *State) Problems() (all []Problem) {
	all = append(all, s.recovery()...)
	if s.ByClaims {
		return append(all, s.ledBy()...)
	}
	if s.Coordinator == "" {
		return append(all, problem(Agreement, "the status shows no coordinator"))
	}
	all = append(all, s.highest()...)
	all = append(all, s.agreement()...)
	all = append(all, s.labels()...)
	return append(all, s.service()...)
}

// Eligible returns the number of members that are up and eligible.
func (s *State) Eligible() (count int) {
	for _, r := range s.Rows {
		if r.Up && r.Eligible {
			count++
		}
	}
	return count
}

func (s *State) recovery() (all []Problem) {
	up := 0
	for _, r := range s.Rows {
		hasPod := r.Witness || slices.ContainsFunc(s.Pods, func(p PodState) bool { return p.Pod == r.Pod })
		switch {
		case r.Up && hasPod:
			up++
		case r.Up:
			all = append(all, problem(Recovery, "%s has no pod with the label conclave.dev/agent=enabled", r.Pod))
		default:
			all = append(all, problem(Recovery, "%s is down (%s)", r.Pod, r.Reason))
		}
	}
	if up < s.Members {
		all = append(all, problem(Recovery, "%d of %d members are up", up, s.Members))
	}
	for _, p := range s.Pods {
		switch {
		case p.Terminating:
			all = append(all, problem(Recovery, "pod %s is being deleted", p.Pod))
		case !p.Ready:
			all = append(all, problem(Recovery, "pod %s isn't ready", p.Pod))
		}
	}
	return all
}

func (s *State) highest() []Problem {
	var best, leads Row
	for _, r := range s.Rows {
		if r.Up && r.Eligible && (!r.HeldBack || r.Pod == s.Coordinator) && r.Priority > best.Priority {
			best = r
		}
		if r.Pod == s.Coordinator {
			leads = r
		}
	}
	switch {
	case !leads.Up:
		return []Problem{problem(Highest, "the status shows coordinator %s, which isn't up", s.Coordinator)}
	case !leads.Eligible:
		return []Problem{problem(Highest, "%s leads, which isn't eligible", s.Coordinator)}
	case s.Preempts && leads.Pod != best.Pod:
		return []Problem{problem(Highest, "%s (priority %d) leads, although %s (priority %d) is eligible", leads.Pod,
			leads.Priority, best.Pod, best.Priority)}
	}
	return nil
}

func (s *State) agreement() (all []Problem) {
	for _, p := range s.Pods {
		switch {
		case p.Terminating:
		case p.View == nil || p.View.Gone:
			all = append(all, problem(Agreement, "the agent of %s doesn't respond", p.Pod))
		case p.View.Coordinator != s.Coordinator || p.View.Term != s.Term:
			all = append(all, problem(Agreement, "the agent of %s reports coordinator %q in term %d, the status %q in term %d",
				p.Pod, p.View.Coordinator, p.View.Term, s.Coordinator, s.Term))
		case p.View.Leading != (p.Pod == s.Coordinator):
			all = append(all,
				problem(Agreement, "the agent of %s reports that it is leading: %t, the status shows coordinator %q", p.Pod,
					p.View.Leading, s.Coordinator))
		}
	}
	return all
}

func (s *State) labels() (all []Problem) {
	for _, p := range s.Pods {
		want := "follower"
		if p.Pod == s.Coordinator {
			want = "coordinator"
		}
		if p.Role != want && !p.Terminating {
			all = append(all, problem(Labels, "pod %s has the role %q, want %s", p.Pod, p.Role, want))
		}
	}
	return all
}

func (s *State) service() []Problem {
	at := slices.IndexFunc(s.Pods, func(p PodState) bool { return p.Pod == s.Coordinator && !p.Terminating })
	if !s.HasService || at < 0 {
		return nil
	}
	if want := []string{s.Pods[at].IP}; !slices.Equal(s.Endpoints, want) {
		return []Problem{problem(Service, "the Service routes to [%s], want %s of %s",
			strings.Join(s.Endpoints, " "), want[0], s.Coordinator)}
	}
	return nil
}
