package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"
)

// show is what the user sees, and what is known of the group.
type show struct {
	out   io.Writer
	top   string
	place place
	begun time.Time
	where map[string]string

	mu    sync.Mutex
	now   status
	seen  time.Time
	news  chan struct{} // closed and replaced when now has changed
	ended error
}

// status is what the demo looks at in the status of an ElectionGroup.
type status struct {
	Coordinator *struct {
		Pod       string
		Term      int64
		ElectedAt time.Time
	}
	Processes []row
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

func (s *show) heading(title string) {
	fmt.Fprintf(s.out, "\n# %s   (%s)\n", title, time.Since(s.begun).Round(time.Second))
}

func (s *show) say(format string, values ...any) { fmt.Fprintf(s.out, format+"\n", values...) }

// follow watches the group until ctx ends.
func (s *show) follow(ctx context.Context) error {
	s.news = make(chan struct{})
	watch := s.place.kubectl(ctx, "get", "electiongroup", group, "--namespace", namespace, "--watch", "-o", "json")
	printed, err := watch.StdoutPipe()
	if err != nil {
		return err
	}
	if err := watch.Start(); err != nil {
		return err
	}
	go func() {
		decoder := json.NewDecoder(printed)
		for {
			var object struct{ Status status }
			err := decoder.Decode(&object)
			s.mu.Lock()
			s.now, s.seen, s.ended = object.Status, time.Now(), err
			close(s.news)
			s.news = make(chan struct{})
			s.mu.Unlock()
			if err != nil {
				_ = watch.Wait() // That the stream ended says it.
				return
			}
		}
	}()
	return nil
}

func (s *show) current() status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// awaitStatus waits until the group's status is as wanted, and says when it was
// seen. Meanwhile it draws what has changed, as far as a line can say it.
func (s *show) awaitStatus(ctx context.Context, what string, limit time.Duration, wanted func(status) bool) (status, time.Time, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("waited %s in vain: %s", limit, what))
	defer cancel()
	last := ""
	for {
		s.mu.Lock()
		now, seen, news, ended := s.now, s.seen, s.news, s.ended
		s.mu.Unlock()
		if ended != nil {
			return now, seen, fmt.Errorf("the watch ended: %w", ended)
		}
		if wanted(now) {
			return now, seen, nil
		}
		if line := summary(now); line != last {
			last = line
			s.say("  %s", line)
		}
		select {
		case <-news:
		case <-ctx.Done():
			s.table(now)
			return now, seen, errors.Join(context.Cause(ctx))
		}
	}
}

// summary is the table in a line.
func summary(g status) string {
	counts := map[string]int{}
	for _, r := range g.Processes {
		counts[r.Status]++
	}
	leader := "nobody leads"
	if g.Coordinator != nil {
		leader = fmt.Sprintf("%s leads in term %d", g.Coordinator.Pod, g.Coordinator.Term)
	}
	return fmt.Sprintf("%s; %d follow, %d crashed, %d unknown", leader, counts["Normal"], counts["Crashed"], counts["Unknown"])
}

// table is the process status table.
func (s *show) table(g status) {
	w := tabwriter.NewWriter(s.out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "  POD\tPRIORITY\tSTATUS\tNODE\tWHY\n")
	for _, r := range g.Processes {
		fmt.Fprintf(w, "  %s\t%d\t%s\t%s\t%s\n", r.Pod, r.Priority, r.Status, s.nodeOf(r.Pod), r.Reason)
	}
	// It is written to memory, and then to the terminal.
	_ = w.Flush()
}

// lookWhere finds out on which node each pod is.
func (s *show) lookWhere(ctx context.Context) error {
	list := s.place.kubectl(ctx, "get", "pods", "--namespace", namespace, "-o", "json")
	said, err := list.Output()
	if err != nil {
		return fmt.Errorf("list the pods: %w", err)
	}
	var pods struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ NodeName string }
		}
	}
	if err := json.Unmarshal(said, &pods); err != nil {
		return fmt.Errorf("list the pods: %w", err)
	}
	s.where = map[string]string{}
	for _, pod := range pods.Items {
		s.where[pod.Metadata.Name] = pod.Spec.NodeName
	}
	return nil
}

func (s *show) nodeOf(pod string) string { return s.where[pod] }

func (s *show) farewell() {
	s.heading("It is all still there")
	s.say("%s", s.place.hint())
	s.say("kubectl get electiongroups --all-namespaces")
	s.say("bin/kubectl-conclave watch %s --namespace %s", group, namespace)
	s.say("make demo-down                         # removes it")
}
