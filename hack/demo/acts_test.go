package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// stub is a cluster with two pods on each of two nodes. What becomes of the group
// when it is maltreated is decided beforehand.
type stub struct {
	place

	show         *show
	struck, well status
	healed       string
}

func (*stub) kubectl(ctx context.Context, _ ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "echo", `{"items":[
		{"metadata":{"name":"p-3"},"spec":{"nodeName":"n-2"}}, {"metadata":{"name":"p-2"},"spec":{"nodeName":"n-2"}},
		{"metadata":{"name":"p-1"},"spec":{"nodeName":"n-1"}}, {"metadata":{"name":"p-0"},"spec":{"nodeName":"n-1"}}]}`)
}

func (s *stub) killAgent(context.Context, string, string) error { return s.becomes(s.struck) }

func (s *stub) cutOff(context.Context, string) error { return s.becomes(s.struck) }

func (s *stub) heal(_ context.Context, node string) error {
	s.healed = node
	return s.becomes(s.well)
}

func (s *stub) becomes(g status) error {
	s.show.mu.Lock()
	defer s.show.mu.Unlock()
	s.show.now = g
	close(s.show.news)
	s.show.news = make(chan struct{})
	return nil
}

// led is the group when a pod leads and the others follow.
func led(t *testing.T, pod string, term int) status {
	t.Helper()
	var g status
	text := fmt.Sprintf(`{"coordinator":{"pod":%q,"term":%d},"processes":[
		{"pod":"p-3","priority":40,"status":"Normal"},{"pod":"p-2","priority":30,"status":"Normal"},
		{"pod":"p-1","priority":20,"status":"Normal"},{"pod":"p-0","priority":10,"status":"Normal"}]}`, pod, term)
	if err := json.Unmarshal([]byte(text), &g); err != nil {
		t.Fatal(err)
	}
	for i, r := range g.Processes {
		if r.Pod == pod {
			g.Processes[i].Status = "Coordinator"
		}
	}
	return g
}

// The demo passes only if the right pod follows: the next below the coordinator,
// and when a node is cut off, the highest on another one.
func TestOnlyTheRightPodMayFollow(t *testing.T) {
	for name, tc := range map[string]struct {
		act    func(*show) error
		heir   string
		failed string
		healed string
	}{
		"the next follows":                  {act: killed, heir: "p-2"},
		"a lower one follows":               {act: killed, heir: "p-1", failed: "p-1 leads, and it should be p-2"},
		"the highest elsewhere follows":     {act: cut, heir: "p-1", healed: "n-2"},
		"one that is cut off follows":       {act: cut, heir: "p-2", healed: "n-2", failed: "p-2 leads, and it should be p-1"},
		"a lower one elsewhere follows":     {act: cut, heir: "p-0", healed: "n-2", failed: "p-0 leads, and it should be p-1"},
		"the watch ends before one follows": {act: unseen, failed: "the watch ended"},
	} {
		t.Run(name, func(t *testing.T) {
			place := &stub{struck: led(t, tc.heir, 8), well: led(t, "p-3", 9)}
			place.show = &show{out: t.Output(), place: place, now: led(t, "p-3", 7), news: make(chan struct{})}
			err := tc.act(place.show)
			if tc.failed == "" && err != nil || tc.failed != "" && (err == nil || !strings.Contains(err.Error(), tc.failed)) {
				t.Errorf("it ends with %v, and should with %q", err, tc.failed)
			}
			if place.healed != tc.healed {
				t.Errorf("the node %q is healed, and not %q", place.healed, tc.healed)
			}
		})
	}
}

// killed kills the coordinator's agent, up to when another one leads.
func killed(s *show) error {
	ctx := context.Background()
	return s.strikeOnce(ctx, "kill -9", func(victim row) error { return s.place.killAgent(ctx, victim.Pod, "") }, others)
}

func cut(s *show) error { return s.cutOff(context.Background()) }

func unseen(s *show) error {
	return s.strikeOnce(context.Background(), "nothing", func(row) error {
		s.ended = fmt.Errorf("nobody is left")
		return nil
	}, others)
}
