package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// redraw is the interval at which the live view is drawn, besides changes of the status.
const redraw = 500 * time.Millisecond

// live shows the group and injects the faults that the user asks for, until the user quits.
type live struct {
	*demo

	view  view
	past  []string       // What came of each fault.
	busy  bool           // A fault is being injected.
	after chan func()    // Changes of the live view by other goroutines.
	draw  func(*view)    // Draws the view.
	keys  <-chan byte    // Closed when the terminal is gone.
	size  chan os.Signal // The size of the terminal has changed.
}

func (s *demo) runLive(ctx context.Context, in, out *os.File) error {
	l := &live{demo: s, keys: readKeys(in)}
	err := l.runOn(ctx, in, out)
	l.summarize()
	if err == nil && l.view.locks.Violation != "" {
		err = errors.New(l.view.locks.String())
	}
	return err
}

// runOn runs the live view on a terminal.
func (l *live) runOn(ctx context.Context, in, out *os.File) (err error) {
	terminal, err := openScreen(in, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, terminal.close()) }()
	size := make(chan os.Signal, 1)
	signal.Notify(size, syscall.SIGWINCH)
	defer signal.Stop(size)
	// The live view shows what the steps of the demo would print.
	printed := l.out
	l.out = newPrinter(io.Discard)
	defer func() { l.out = printed }()
	l.draw, l.size = terminal.draw, size
	return l.run(ctx)
}

// summarize prints what the live view has shown, because the terminal shows it no longer.
func (l *live) summarize() {
	for _, fault := range l.past {
		l.printf("%s", fault)
	}
	l.printf("locks: %s", l.view.locks)
}

func readKeys(in io.Reader) <-chan byte {
	keys := make(chan byte)
	go func() {
		defer close(keys)
		for reader := bufio.NewReader(in); ; {
			key, err := reader.ReadByte()
			if err != nil {
				return
			}
			keys <- key
		}
	}()
	return keys
}

// run runs until the user quits, ctx ends or the terminal is gone. It restores an isolated node.
func (l *live) run(ctx context.Context) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	l.after = make(chan func())
	defer func() {
		if l.view.isolated != "" {
			err = errors.Join(err, l.cluster.heal(context.WithoutCancel(ctx), l.view.isolated))
		}
	}()
	ticker := time.NewTicker(redraw)
	defer ticker.Stop()
	for {
		if err := l.refresh(); err != nil {
			return err
		}
		select {
		case key, open := <-l.keys:
			if !open || key == 'q' || key == 3 || key == 4 { // Ctrl-C and Ctrl-D.
				return nil
			}
			l.press(ctx, key)
		case change := <-l.after:
			change()
		case <-l.changes():
		case <-ticker.C:
		case <-l.size:
		case <-ctx.Done():
			return nil
		}
	}
}

// refresh draws the present state.
func (l *live) refresh() error {
	l.mu.Lock()
	l.view.nodes, l.view.locks = l.nodes, l.locks
	l.view.setGroup(l.now)
	ended := l.ended
	l.mu.Unlock()
	if ended != nil {
		return ended
	}
	l.view.now = time.Now()
	l.draw(&l.view)
	return nil
}

func (l *live) changes() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// change runs a function in the goroutine of run.
func (l *live) change(ctx context.Context, change func()) {
	select {
	case l.after <- change:
	case <-ctx.Done():
	}
}

// press injects the fault of a key.
func (l *live) press(ctx context.Context, key byte) {
	if !strings.ContainsRune("apn", rune(key)) {
		return
	}
	if l.busy {
		l.view.failover = "please wait ..."
		return
	}
	victim := coordinatorOf(l.view.shown).Pod
	node := l.nodeOf(victim)
	switch {
	case key == 'n' && l.view.isolated != "":
		l.restore(ctx)
	case victim == "":
		l.view.fault, l.view.failover = "none: there is no coordinator at present", ""
	case key == 'a':
		l.inject(ctx, "killed the agent of "+victim, func(string) error { return l.cluster.killAgent(ctx, victim, node) })
	case key == 'p':
		l.inject(ctx, "deleted "+victim+" by force", func(string) error {
			return run(l.cluster.kubectl(ctx, "delete", "pod", victim, "--namespace", namespace, "--grace-period=0", "--force"))
		})
	case key == 'n':
		l.view.isolated = node
		l.inject(ctx, "isolated "+node, func(string) error { return l.cluster.partition(ctx, node) })
	}
}

// inject takes the coordinator away and shows how long the failover took.
func (l *live) inject(ctx context.Context, fault string, inject func(string) error) {
	l.busy, l.view.fault, l.view.failover = true, fault, "..."
	go func() {
		took, _, err := l.failover(ctx, inject)
		if err == nil {
			// A pod that was deleted may return on another node. The next fault updates the nodes if this fails.
			_ = l.updateNodes(ctx)
		}
		l.change(ctx, func() {
			l.busy = false
			if l.view.failover = took.String(); err != nil {
				l.view.failover = err.Error()
			}
			l.past = append(l.past, fault+": "+l.view.failover)
		})
	}()
}

func (l *live) restore(ctx context.Context) {
	node := l.view.isolated
	l.busy, l.view.fault, l.view.failover = true, "restoring "+node+" ...", ""
	go func() {
		err := l.cluster.heal(ctx, node)
		l.change(ctx, func() {
			l.busy, l.view.fault = false, "restored "+node
			if err != nil {
				l.view.fault = "cannot restore " + node + ": " + err.Error()
				return
			}
			l.view.isolated = ""
		})
	}()
}
