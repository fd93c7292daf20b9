package agentcluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/group"
)

// look is how often a condition is looked at that nobody announces.
const look = 5 * time.Millisecond

// Await returns nil as soon as the condition holds, and if ctx ends before, the
// last reason why it didn't.
func Await(ctx context.Context, holds func(ctx context.Context) error) error {
	again := time.NewTicker(look)
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

// AwaitCoordinator returns the coordinator on which all of the agents with these
// names agree, as soon as they do; all that run, if no names are given. It must
// be one of them, and know it.
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
		return "", fmt.Errorf("%s agree on no coordinator: %w", strings.Join(names, ", "), err)
	}
	return coordinator, nil
}

// coordinator returns on whom they agree, or how they don't.
func (t *Cluster) coordinator(ctx context.Context, names []string) (string, error) {
	leaders := make([]group.Leader, 0, len(names))
	for _, name := range names {
		leader, err := t.promptly(ctx, name)
		if err != nil {
			return "", err
		}
		leaders = append(leaders, leader)
	}
	agreed := len(leaders) > 0 && leaders[0].Coordinator != ""
	known := false
	for _, leader := range leaders {
		agreed = agreed && leader.Coordinator == leaders[0].Coordinator && leader.Term == leaders[0].Term
		known = known || leader.Leading && leader.Self == leaders[0].Coordinator
	}
	if !agreed || !known {
		return "", fmt.Errorf("they say: %s", describe(leaders))
	}
	return leaders[0].Coordinator, nil
}

// promptly asks an agent that may be stopped, or about to end.
func (t *Cluster) promptly(ctx context.Context, name string) (group.Leader, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return t.Leader(ctx, name)
}

func describe(leaders []group.Leader) string {
	words := make([]string, len(leaders))
	for i, leader := range leaders {
		who := leader.Coordinator
		if who == "" {
			who = "nobody"
		}
		if leader.Leading {
			who += ", and leads"
		}
		words[i] = fmt.Sprintf("%s: %s in term %d", leader.Self, who, leader.Term)
	}
	return strings.Join(words, "; ")
}

// AwaitConnected returns when all agents that run are connected with each other,
// and none of them takes another one for crashed.
func (t *Cluster) AwaitConnected(ctx context.Context) error {
	return Await(ctx, func(ctx context.Context) error {
		running := t.Running()
		if len(running) == 0 {
			return errors.New("no agent runs")
		}
		for _, name := range running {
			if err := t.connected(ctx, name, running); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *Cluster) connected(ctx context.Context, name string, running []string) error {
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
			return fmt.Errorf("%s isn't connected with %s", name, other)
		case row.Status == "Crashed":
			return fmt.Errorf("%s takes %s for crashed", name, other)
		}
	}
	return nil
}
