package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// elector takes part in the election of one group, by the public API of its system and as its authors recommend.
type elector interface {
	// run takes part until ctx ends, and then gives up the leadership in the way that the authors provide.
	run(ctx context.Context, to *reporter) error
	// leads asks the system whether this process may act as leader now.
	leads() bool
}

// starter starts what a candidate needs beside this process, and returns an elector for each group.
type starter func(ctx context.Context, s *spec) ([]elector, error)

// spec tells a candidate, which is a process of this program, what to do.
type spec struct {
	System string
	// Self is the index of this candidate in Hosts, which has an address of each. It is also the candidate's name.
	Self  int
	Hosts []string
	// Set is the name of the set of candidates. No other set has it.
	Set    string
	Groups int
	Folder string
	// Server is the file for the API server, or etcd's address.
	Server string
	// Agent is the command that starts Conclave's agent, and API the address that it serves. Members are the names of all
	// members.
	Agent   []string
	API     string
	Members []string
	// Poll is how often the candidate asks whether it leads. While idle candidates are measured, they don't.
	Poll time.Duration

	daemons  []*exec.Cmd
	requests atomic.Int64
}

func (s *spec) host() string { return s.Hosts[s.Self] }

// dialer dials from this candidate's address, so that its packets can be counted and dropped.
func (s *spec) dialer() *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(s.host())}}
}

func (s *spec) dialTimeout(address string, timeout time.Duration) (net.Conn, error) {
	dialer := s.dialer()
	dialer.Timeout = timeout
	return dialer.DialContext(context.Background(), "tcp", address)
}

// daemon starts another process of this candidate. All are in one process group, so that a fault hits them at once.
func (s *spec) daemon(arguments ...string) error {
	log, err := os.OpenFile(filepath.Join(s.Folder, filepath.Base(arguments[0])+".log"),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.CommandContext(context.Background(), arguments[0], arguments[1:]...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.daemons = append(s.daemons, command)
	return command.Start()
}

func newCandidateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "candidate SPEC", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			var s spec
			if err := json.Unmarshal([]byte(arguments[0]), &s); err != nil {
				return err
			}
			// The program ends by SIGTERM only. What the terminal sends is for the process that started it.
			ctx, cancel := signal.NotifyContext(context.WithoutCancel(command.Context()), syscall.SIGTERM)
			defer cancel()
			return s.run(ctx)
		},
	}
}

func (s *spec) run(ctx context.Context) error {
	of, err := systemNamed(s.System)
	if err != nil {
		return err
	}
	electors, err := of.start(ctx, s)
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	failed := make(chan error, len(electors))
	reporters := make([]*reporter, len(electors))
	for i, e := range electors {
		reporters[i] = &reporter{group: i, leads: e.leads, known: -1}
		work.Go(func() {
			if err := e.run(ctx, reporters[i]); err != nil && ctx.Err() == nil {
				failed <- fmt.Errorf("%s, candidate %d: %w", s.System, s.Self, err)
			}
		})
	}
	select {
	case <-s.observe(ctx, reporters):
	case err := <-failed:
		return err
	}
	work.Wait()
	for _, r := range reporters {
		r.check()
	}
	for _, daemon := range s.daemons {
		err = errors.Join(err, daemon.Wait())
	}
	return err
}

// observe asks each elector periodically whether it leads, until ctx ends.
func (s *spec) observe(ctx context.Context, reporters []*reporter) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		poll, count := time.NewTicker(max(s.Poll, time.Millisecond)), time.NewTicker(time.Second)
		defer poll.Stop()
		defer count.Stop()
		if s.Poll == 0 {
			poll.Stop()
		}
		for {
			select {
			case <-poll.C:
				for _, r := range reporters {
					r.check()
				}
			case <-count.C:
				if n := s.requests.Load(); n > 0 && s.Poll == 0 {
					fmt.Fprintf(os.Stdout, "%d requests %d 0\n", monotonic(), n)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ended
}

// monotonic reads a clock that all processes of the machine share.
func monotonic() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // Every Linux has this clock.
	}
	return now.Nano()
}

// reporter prints what a candidate learns about a group: a time of the clock, what happened, the group, and a value.
type reporter struct {
	group int
	leads func() bool

	mutex sync.Mutex
	known int
	// led: the last answer was that this process leads. lastYes is when that was asked.
	led     bool
	lastYes int64
}

// know reports that this process has learnt that a candidate leads. Leader is -1 if there is none.
func (r *reporter) know(leader int) {
	at := monotonic()
	r.mutex.Lock()
	if leader != r.known {
		r.known = leader
		fmt.Fprintf(os.Stdout, "%d knows %d %d\n", at, r.group, leader)
	}
	r.mutex.Unlock()
	r.check()
}

// check asks whether this process leads. A leader that was stopped for a while hasn't led in between if its first
// answer after that is no: it never said yes too late.
func (r *reporter) check() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	asked := monotonic()
	leads := r.leads()
	switch {
	case leads && !r.led:
		fmt.Fprintf(os.Stdout, "%d leads %d 0\n", monotonic(), r.group)
	case !leads && r.led:
		fmt.Fprintf(os.Stdout, "%d left %d %d\n", asked, r.group, r.lastYes)
	}
	if r.led = leads; leads {
		r.lastYes = asked
	}
}

// indexOf returns the index of the candidate with this address, or -1.
func (s *spec) indexOf(host string) int { return slices.Index(s.Hosts, host) }
