package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
)

// candidates is the number of candidates of most sets.
const candidates = 3

// settleLimit bounds the wait until all candidates agree. It isn't measured.
const settleLimit = 3 * time.Minute

// set is a set of candidates of one system. One of them leads.
type set struct {
	of    system
	name  string
	env   *environment
	specs []*spec
	// mutex guards the candidates, which their output changes. changed is closed and replaced with each change.
	mutex      sync.Mutex
	changed    chan struct{}
	candidates []*candidate
	claims     []claim // all answers, of group 0
	failed     error
	close      func() error
}

// candidate is one process, with what it has said last.
type candidate struct {
	command  *exec.Cmd
	knows    map[int]learnt
	leads    map[int]int64 // since when, by group
	requests int64
	ended    bool
	// expected: the process was asked to end, or killed.
	expected bool
}

type learnt struct {
	leader int
	at     int64
}

// claim is a time in which a candidate answered that it leads.
type claim struct {
	index    int
	from, to int64
}

// newSet starts size candidates in folder, in a number of groups.
func newSet(ctx context.Context, of system, name, folder string, size, groups int, poll time.Duration,
	env *environment,
) (*set, error) {
	s := &set{of: of, name: name, env: env, changed: make(chan struct{}), candidates: make([]*candidate,
		size), close: func() error { return nil }}
	hosts := env.hosts(size)
	var agents *agentcluster.Cluster
	if of.mode != "" {
		var err error
		if agents, err = newAgents(ctx, of.mode, filepath.Join(folder, name), env.agent, size, groups); err != nil {
			return nil, err
		}
		s.close = agents.Close
		for i, member := range agents.Names() {
			hosts[i] = agents.Agent(member).Host
		}
	}
	if err := env.count(ctx, of.name, hosts); err != nil {
		return nil, err
	}
	for i := range hosts {
		sp := &spec{System: of.name, Self: i, Hosts: hosts, Set: name, Groups: groups, Folder: filepath.Join(folder, name,
			strconv.Itoa(i)), Poll: poll}
		if agents != nil {
			member := agents.Names()[i]
			sp.API, sp.Members = agents.Agent(member).API, agents.Names()
			sp.Agent = []string{env.agent, "--config", filepath.Join(folder, name, member, "agent.yaml")}
		}
		if of.server {
			sp.Server = env.serverFor(of)
		}
		if err := os.MkdirAll(sp.Folder, 0o700); err != nil {
			return nil, err
		}
		s.specs = append(s.specs, sp)
		if err := s.start(i); err != nil {
			s.stop()
			return nil, err
		}
	}
	return s, nil
}

// newAgents writes the files of Conclave's agents, which the candidates start.
func newAgents(ctx context.Context, mode, folder, binary string, size, groups int) (*agentcluster.Cluster, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	plan := agentcluster.Options{Binary: binary, Folder: folder, Agents: size, TLS: true}
	for i := range groups {
		group := agentcluster.Group{
			Name: groupName(i), Safety: agentcluster.Safety{Mode: mode}, Preemption: agentcluster.Preemption{Policy: "Never"},
		}
		if i == 0 {
			plan.Group = group
		} else {
			plan.Further = append(plan.Further, group)
		}
	}
	return agentcluster.New(ctx, plan)
}

func groupName(index int) string { return "group-" + strconv.Itoa(index) }

// start starts a candidate in a process group of its own.
func (s *set) start(index int) error {
	text, err := json.Marshal(s.specs[index])
	if err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	command := exec.CommandContext(context.Background(), executable, "candidate", string(text))
	log, err := os.OpenFile(filepath.Join(s.specs[index].Folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	command.Stderr = log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	output, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		return fmt.Errorf("cannot start a candidate: %w", err)
	}
	c := &candidate{command: command, knows: map[int]learnt{}, leads: map[int]int64{}}
	s.mutex.Lock()
	s.candidates[index] = c
	s.mutex.Unlock()
	go s.read(index, c, output)
	return nil
}

// read handles the output of a candidate until it ends.
func (s *set) read(index int, c *candidate, output io.Reader) {
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		s.handle(index, c, lines.Text())
	}
	err := c.command.Wait()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	c.ended = true
	s.endClaim(index, c, monotonic())
	if !c.expected {
		log, _ := os.ReadFile(filepath.Join(s.specs[index].Folder, "log")) // It may not exist.
		s.failed = fmt.Errorf("candidate %d of %s ended by itself: %w: %s", index, s.name, err, log)
	}
	s.signal()
}

// handle handles a line: see reporter.
func (s *set) handle(index int, c *candidate, line string) {
	var at, value int64
	var what string
	var group int
	if _, err := fmt.Sscan(line, &at, &what, &group, &value); err != nil {
		return // A line of a library.
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch what {
	case "knows":
		c.knows[group] = learnt{int(value), at}
	case "leads":
		c.leads[group] = at
	case "left":
		if group == 0 {
			s.endClaim(index, c, value)
		}
		delete(c.leads, group)
	case "requests":
		c.requests = int64(group)
	}
	s.signal()
}

func (s *set) endClaim(index int, c *candidate, at int64) {
	if from, leading := c.leads[0]; leading {
		s.claims = append(s.claims, claim{index, from, at})
		delete(c.leads, 0)
	}
}

func (s *set) signal() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// errLate: the candidates didn't agree in time.
var errLate = errors.New("not in time")

// await returns when a condition holds, which is called with the mutex held.
func (s *set) await(ctx context.Context, limit time.Duration, holds func() bool) error {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for {
		s.mutex.Lock()
		done, failed, changed := holds(), s.failed, s.changed
		s.mutex.Unlock()
		if failed != nil || done {
			return failed
		}
		select {
		case <-changed:
		case <-timeout.C:
			return fmt.Errorf("%s: %w: %s", s.name, errLate, s.describe())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// describe names a group in which the candidates don't agree.
func (s *set) describe() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for group := range s.specs[0].Groups {
		if _, _, ok := s.agreed(group, -1); ok {
			continue
		}
		var known []string
		for i, c := range s.candidates {
			text := "nobody"
			if k, heard := c.knows[group]; heard && k.leader >= 0 {
				text = strconv.Itoa(k.leader)
			}
			if _, leads := c.leads[group]; leads {
				text += ", leads"
			}
			known = append(known, fmt.Sprintf("%d knows %s", i, text))
		}
		return fmt.Sprintf("group %d: %s", group, strings.Join(known, "; "))
	}
	return ""
}
