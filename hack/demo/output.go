package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// demo prints the progress and tracks the status of the group.
type demo struct {
	out     *printer
	top     string
	cluster cluster
	start   time.Time
	// background has what ends with the demo.
	background sync.WaitGroup

	mu         sync.Mutex
	nodes      map[string]string // The node of each pod. The map isn't changed, only replaced.
	now        status
	object     *v1.ElectionGroup // What now is the status of. It isn't changed, only replaced.
	locks      locks
	observedAt time.Time
	changed    chan struct{} // closed and replaced when now changes
	ended      error
}

// status contains the fields of an ElectionGroup's status that the demo uses.
type status struct {
	Coordinator *struct {
		Pod       string
		Term      int64
		ElectedAt time.Time
	}
	Processes []row
	History   []struct {
		Term      int64
		GapMicros *int64
	}
}

// gap returns the time without a coordinator before the present one, or a default if the status doesn't contain it.
func (g status) gap(unknown time.Duration) time.Duration {
	for _, tenure := range g.History {
		if g.Coordinator != nil && tenure.Term == g.Coordinator.Term && tenure.GapMicros != nil {
			return time.Duration(*tenure.GapMicros) * time.Microsecond
		}
	}
	return unknown
}

type row struct {
	Pod      string
	Priority int
	Status   string
	Reason   string
}

func (g status) coordinator() row {
	for _, r := range g.Processes {
		if g.Coordinator != nil && r.Pod == g.Coordinator.Pod {
			return r
		}
	}
	return row{}
}

func (s *demo) heading(title string) {
	fmt.Fprintf(s.out, "\n# %s   (%s)\n", title, time.Since(s.start).Round(time.Second))
}

func (s *demo) printf(format string, values ...any) { fmt.Fprintf(s.out, format+"\n", values...) }

// watch watches the group until ctx ends.
func (s *demo) watch(ctx context.Context) {
	s.changed = make(chan struct{})
	s.background.Go(func() {
		for {
			if err := s.watchOnce(ctx); err != nil {
				s.update(func() { s.ended = err })
				return
			}
		}
	})
}

// update changes the state of the watch.
func (s *demo) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// watchOnce watches the group until the API server ends the watch, which it does after a while. It returns an error if it
// hasn't seen the group.
func (s *demo) watchOnce(ctx context.Context) error {
	command := s.cluster.kubectl(ctx, "get", "electiongroup", group, "--namespace", namespace, "--watch", "-o", "json")
	var problem strings.Builder
	command.Stderr = &problem
	stdout, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	seen := false
	for decoder := json.NewDecoder(stdout); ; seen = true {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			break
		}
		var object v1.ElectionGroup
		var parsed struct{ Status status }
		if err := errors.Join(json.Unmarshal(raw, &object), json.Unmarshal(raw, &parsed)); err != nil {
			break
		}
		s.update(func() { s.now, s.object, s.observedAt = parsed.Status, &object, time.Now() })
	}
	if err := command.Wait(); !seen {
		return fmt.Errorf("cannot watch the group: %w: %s", err, strings.TrimSpace(problem.String()))
	}
	return nil
}

func (s *demo) current() status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// awaitStatus waits until the group's status meets a condition, and returns the time at
// which it was observed. Meanwhile it prints one line for each change.
func (s *demo) awaitStatus(ctx context.Context, condition string, limit time.Duration, wanted func(status) bool) (status, time.Time, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("timed out after %s waiting for %s", limit, condition))
	defer cancel()
	last := ""
	for {
		s.mu.Lock()
		now, observed, changed, ended := s.now, s.observedAt, s.changed, s.ended
		s.mu.Unlock()
		if ended != nil {
			return now, observed, ended
		}
		if wanted(now) {
			return now, observed, nil
		}
		if line := summary(now); line != last {
			last = line
			s.printf("  %s", line)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			s.table(now)
			return now, observed, context.Cause(ctx)
		}
	}
}

// summary is the table in one line.
func summary(g status) string {
	if len(g.Processes) == 0 {
		return "the pods are being created"
	}
	up := 0
	for _, r := range g.Processes {
		if r.Status == "Coordinator" || r.Status == "Normal" {
			up++
		}
	}
	leader := "no coordinator yet"
	if g.Coordinator != nil {
		leader = fmt.Sprintf("%s leads in term %d", g.Coordinator.Pod, g.Coordinator.Term)
	}
	return fmt.Sprintf("%d of %d members are up, %s", up, len(g.Processes), leader)
}

// table prints the process status table.
func (s *demo) table(g status) {
	w := tabwriter.NewWriter(s.out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "  POD\tPRIORITY\tSTATUS\tNODE\tNOTE\n")
	for _, r := range g.Processes {
		fmt.Fprintf(w, "  %s\t%d\t%s\t%s\t%s\n", r.Pod, r.Priority, r.Status, s.nodeOf(r.Pod), r.note())
	}
	// A failed write to the terminal cannot be reported.
	_ = w.Flush()
}

// notes explain the reasons in a status.
var notes = map[string]string{
	"PodPending": "starting", "PodMissing": "being recreated", "PodTerminating": "being deleted",
	"Unreachable": "its agent doesn't respond", "Disputed": "the agents disagree",
	"NotEligible": "cannot lead yet", "HeldBack": "held back: its tenures were short",
}

// note explains the status. The reason PodPending of a process that is up only says that kubelet hasn't reported its
// application yet, so it isn't mentioned.
func (r row) note() string {
	if r.Reason == "PodPending" && (r.Status == "Coordinator" || r.Status == "Normal") {
		return ""
	}
	if note, known := notes[r.Reason]; known {
		return note
	}
	return r.Reason
}

// updateNodes queries the node of each pod.
func (s *demo) updateNodes(ctx context.Context) error {
	output, err := s.cluster.kubectl(ctx, "get", "pods", "--namespace", namespace, "-o", "json").Output()
	if err != nil {
		return fmt.Errorf("cannot list the pods: %w", err)
	}
	var pods struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ NodeName string }
		}
	}
	if err := json.Unmarshal(output, &pods); err != nil {
		return fmt.Errorf("cannot list the pods: %w", err)
	}
	nodes := map[string]string{}
	for _, pod := range pods.Items {
		nodes[pod.Metadata.Name] = pod.Spec.NodeName
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes = nodes
	return nil
}

func (s *demo) nodeOf(pod string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[pod]
}

func (s *demo) printNextSteps() {
	s.heading("The cluster keeps running")
	if _, sudo := os.LookupEnv("SUDO_UID"); sudo {
		s.printf("sudo -s                                # the cluster belongs to root")
	}
	s.printf("%s", s.cluster.hint())
	kubectl := "kubectl"
	if _, err := exec.LookPath("kubectl"); err != nil {
		kubectl = "bin/cluster kubectl --name " + clusterName + " --" // kind needs kubectl.
	}
	s.printf("%s get electiongroups --all-namespaces", kubectl)
	s.printf("%s exec --namespace %s %s -- /lock-service check http://127.0.0.1:8090", kubectl, namespace, ledgerPod)
	s.printf("bin/kubectl-conclave watch %s --namespace %s", group, namespace)
	s.printf("make demo-down                         # removes the demo")
}
