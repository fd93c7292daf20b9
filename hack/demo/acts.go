package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// The waits, which only a failure takes to the end.
const (
	soon  = 2 * time.Minute
	later = 5 * time.Minute
)

func (s *show) bringUp(ctx context.Context) error { return s.place.bringUp(ctx, s.out) }

func (s *show) loadImages(ctx context.Context) error {
	for _, image := range []struct{ source, name string }{
		{"cmd/manager", managerImage}, {"cmd/agent", agentImage}, {"examples/go", workerImage},
	} {
		folder, err := os.MkdirTemp("", "conclave-demo-")
		if err != nil {
			return err
		}
		build := exec.CommandContext(ctx, "go", "-C", filepath.Join(s.top, "hack", "image"), "run", ".", "-source", s.top,
			"-package", "./"+image.source, "-version", "demo", "-tag", image.name, "-output", folder)
		build.Env = append(os.Environ(), "GOWORK=off")
		err = quietly(build)
		if err == nil {
			err = s.place.load(ctx, filepath.Join(folder, filepath.Base(image.source)+".tar"))
		}
		if err := errors.Join(err, os.RemoveAll(folder)); err != nil {
			return err
		}
		s.say("%s", image.name)
	}
	return nil
}

func (s *show) install(ctx context.Context) error {
	build := exec.CommandContext(ctx, "make", "build-installer", "IMG="+managerImage, "AGENT_IMG="+agentImage)
	if err := quietly(build); err != nil {
		return err
	}
	s.say("$ kubectl apply --server-side -f dist/install.yaml")
	if err := quietly(s.place.kubectl(ctx, "apply", "--server-side", "-f", filepath.Join(s.top, "dist", "install.yaml"))); err != nil {
		return err
	}
	if err := s.await(ctx, "the operator is available", "wait", "deployment/conclave-manager", "--namespace", system,
		"--for=condition=Available"); err != nil {
		return err
	}
	s.say("the operator runs, twice")
	return nil
}

// apply makes the group of config/samples, with a program in its pods that works
// while it leads.
func (s *show) apply(ctx context.Context) error {
	sample, err := os.ReadFile(filepath.Join(s.top, "config", "samples", "statefulset.yaml"))
	if err != nil {
		return err
	}
	text := strings.Replace(string(sample), "image: conclave.dev/hack/pause:1", "image: "+workerImage+"\n        args: ["+group+"]", 1)
	if text == string(sample) {
		return errors.New("config/samples/statefulset.yaml has another image than expected")
	}
	if err := quietly(s.place.kubectl(ctx, "delete", "namespace", namespace, "--ignore-not-found")); err != nil {
		return err
	}
	if err := quietly(s.place.kubectl(ctx, "create", "namespace", namespace)); err != nil {
		return err
	}
	s.say("$ kubectl apply -f config/samples/statefulset.yaml")
	apply := s.place.kubectl(ctx, "apply", "--namespace", namespace, "-f", "-")
	apply.Stdin = strings.NewReader(text)
	if err := quietly(apply); err != nil {
		return err
	}
	if err := s.follow(ctx); err != nil {
		return err
	}
	return s.awaitWell(ctx)
}

// killProcess ends the agent as a crash does. Its container is started again,
// and when it has been stable for a while, it leads again.
func (s *show) killProcess(ctx context.Context) error {
	return s.strike(ctx, "kill -9", func(victim row) error { return s.place.killAgent(ctx, victim.Pod, s.nodeOf(victim.Pod)) },
		others)
}

func (s *show) deletePod(ctx context.Context) error {
	return s.strike(ctx, "kubectl delete pod --grace-period=0 --force", func(victim row) error {
		return quietly(s.place.kubectl(ctx, "delete", "pod", victim.Pod, "--namespace", namespace, "--grace-period=0", "--force"))
	}, others)
}

// others: a pod that is taken away leaves all the others.
func others(victim, other row) bool { return other.Pod != victim.Pod }

// cutOff leaves the coordinator running, where nobody hears it and it hears nobody.
func (s *show) cutOff(ctx context.Context) (err error) {
	var node string
	defer func() {
		if node == "" {
			return
		}
		s.say("the cable is put back")
		// It must be put back also when the demo was interrupted.
		err = errors.Join(err, s.place.heal(context.WithoutCancel(ctx), node))
		if err == nil {
			err = s.awaitWell(ctx)
		}
	}()
	return s.strikeOnce(ctx, "the network of its node is cut", func(victim row) error {
		node = s.nodeOf(victim.Pod)
		return s.place.cutOff(ctx, node)
	}, func(victim, other row) bool { return s.nodeOf(other.Pod) != s.nodeOf(victim.Pod) })
}

// strike takes the coordinator away, and waits until all is well again.
func (s *show) strike(ctx context.Context, what string, hit func(row) error, remains func(victim, other row) bool) error {
	if err := s.strikeOnce(ctx, what, hit, remains); err != nil {
		return err
	}
	return s.awaitWell(ctx)
}

// strikeOnce takes the coordinator away. The one to follow is the highest that
// remains.
func (s *show) strikeOnce(ctx context.Context, what string, hit func(row) error, remains func(victim, other row) bool) error {
	if err := s.lookWhere(ctx); err != nil {
		return err
	}
	now := s.current()
	victim := now.coordinator()
	heir := ""
	for _, r := range now.Processes { // the highest first
		if remains(victim, r) && r.Priority > 0 {
			heir = r.Pod
			break
		}
	}
	s.say("%s leads on %s: %s", victim.Pod, s.nodeOf(victim.Pod), what)
	struck := time.Now()
	if err := hit(victim); err != nil {
		return err
	}
	next, seen, err := s.awaitStatus(ctx, "another pod leads", soon, func(g status) bool {
		return g.Coordinator != nil && g.Coordinator.Term > now.Coordinator.Term && g.Coordinator.Pod != victim.Pod
	})
	if err != nil {
		return err
	}
	if next.Coordinator.Pod != heir {
		return fmt.Errorf("%s leads, and it should be %s", next.Coordinator.Pod, heir)
	}
	// The command itself takes its time before it strikes.
	s.say("%s leads. Nobody did for %.1f ms at most, from the command on; the status said so after %.1f ms",
		heir, millis(next.Coordinator.ElectedAt.Sub(struck)), millis(seen.Sub(struck)))
	s.table(next)
	return nil
}

// awaitWell waits until the highest member leads, and all others follow.
func (s *show) awaitWell(ctx context.Context) error {
	well, _, err := s.awaitStatus(ctx, "all members are up, and the highest leads", later, func(g status) bool {
		for i, r := range g.Processes {
			if want := map[bool]string{true: "Coordinator", false: "Normal"}[i == 0]; r.Status != want {
				return false
			}
		}
		return len(g.Processes) > 0 && g.Coordinator != nil && g.Coordinator.Pod == g.Processes[0].Pod
	})
	if err != nil {
		return err
	}
	if err := s.lookWhere(ctx); err != nil {
		return err
	}
	s.say("all are up, and %s leads", well.Coordinator.Pod)
	s.table(well)
	return nil
}

// await runs a kubectl that waits.
func (s *show) await(ctx context.Context, what string, arguments ...string) error {
	if err := quietly(s.place.kubectl(ctx, append(arguments, "--timeout", soon.String())...)); err != nil {
		return fmt.Errorf("waited for: %s: %w", what, err)
	}
	return nil
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
