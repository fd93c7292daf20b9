package agentcluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/group"
)

// pollInterval is the interval at which Await checks a condition.
const pollInterval = 5 * time.Millisecond

// Await returns nil as soon as the condition holds. If ctx ends before, it returns the condition's last error.
func Await(ctx context.Context, holds func(ctx context.Context) error) error {
	again := time.NewTicker(pollInterval)
	defer again.Stop()
	for {
		err := holds(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// AwaitCoordinator returns the coordinator as soon as all agents with these names agree on it; without names, all
// running agents. The coordinator must be one of them and must confirm that it leads.
func (t *Cluster) AwaitCoordinator(ctx context.Context, names ...string) (string, error) {
	if len(names) == 0 {
		names = t.Running()
	}
	var coordinator string
	err := Await(ctx, func(ctx context.Context) (err error) {
		coordinator, err = t.coordinator(ctx, names)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("%s don't agree on a coordinator: %w", strings.Join(names, ", "), err)
	}
	return coordinator, nil
}

// coordinator returns the coordinator on which the agents agree, or an error that describes how they differ.
func (t *Cluster) coordinator(ctx context.Context, names []string) (string, error) {
	leaders := make([]group.Leader, 0, len(names))
	for _, name := range names {
		leader, err := t.leaderWithin(ctx, name)
		if err != nil {
			return "", err
		}
		leaders = append(leaders, leader)
	}
	agreed := len(leaders) > 0 && leaders[0].Coordinator != ""
	confirmed := false
	for _, leader := range leaders {
		agreed = agreed && leader.Coordinator == leaders[0].Coordinator && leader.Term == leaders[0].Term
		confirmed = confirmed || leader.Leading && leader.Self == leaders[0].Coordinator
	}
	if !agreed || !confirmed {
		return "", fmt.Errorf("they report: %s", describe(leaders))
	}
	return leaders[0].Coordinator, nil
}

// leaderWithin queries an agent with a timeout: it may be paused or about to exit.
func (t *Cluster) leaderWithin(ctx context.Context, name string) (group.Leader, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return t.Leader(ctx, name)
}

func describe(leaders []group.Leader) string {
	words := make([]string, len(leaders))
	for i, leader := range leaders {
		coordinator := leader.Coordinator
		if coordinator == "" {
			coordinator = "no coordinator"
		}
		if leader.Leading {
			coordinator += " (itself, leading)"
		}
		words[i] = fmt.Sprintf("%s: %s in term %d", leader.Self, coordinator, leader.Term)
	}
	return strings.Join(words, "; ")
}

// AwaitConnected returns when all running agents are connected to each other and none
// of them reports another one as crashed.
func (t *Cluster) AwaitConnected(ctx context.Context) error {
	return Await(ctx, func(ctx context.Context) error {
		running := t.Running()
		if len(running) == 0 {
			return errors.New("no agent is running")
		}
		for _, name := range running {
			if err := t.checkConnected(ctx, name, running); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *Cluster) checkConnected(ctx context.Context, name string, running []string) error {
	status, err := t.Status(ctx, name)
	if err != nil {
		return err
	}
	rows := make(map[string]group.Process, len(status.Processes))
	for _, row := range status.Processes {
		rows[row.Name] = row
	}
	for _, other := range running {
		switch row := rows[other]; {
		case other != name && !row.Connected:
			return fmt.Errorf("%s isn't connected to %s", name, other)
		case row.Status == "Crashed":
			return fmt.Errorf("%s reports %s as crashed", name, other)
		}
	}
	return nil
}
