package proxy

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Limits bound what clients can take from the agent. Connections above a limit are reset.
type Limits struct {
	Connections               int // of all groups
	GroupConnections, Waiting int // of each group; Waiting is for those without a coordinator
	// Pipes is the number of connections that move bytes at the same time. Others wait for them. A connection keeps its
	// pipe while an end takes no bytes.
	Pipes int
	// Large is the number of directions with large buffers.
	Large int
}

const (
	maxConnections = 10_000
	// maxMemory is what the agent needs at most in a container without a limit.
	maxMemory = 2 << 30
	// reservedMemory and reservedFiles are left to the rest of the agent, such as connections with peers.
	reservedMemory = 32 << 20
	reservedFiles  = 2500
)

// UsualLimits are those of an agent. They depend on the memory of its container, and on how many files it may open. No
// group can use up everything.
func UsualLimits() Limits {
	memory := uint64(maxMemory)
	if text, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if limit, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil { // not "max"
			memory = min(memory, limit)
		}
	}
	quarter := (max(memory, reservedMemory) - reservedMemory) / 4
	most := min(maxConnections, 3*quarter/connectionMemory)
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil {
		most = min(most, (max(files.Cur, reservedFiles)-reservedFiles)/2) // A connection has two sockets.
	}
	n := int(most) //nolint:gosec // at most maxConnections
	large := int(quarter / directionMemory)
	return Limits{Connections: n, GroupConnections: n - n/5, Waiting: n / 5, Pipes: 128, Large: large}
}

// Shared is what the proxies of an agent have in common.
type Shared struct {
	limits      Limits
	connections atomic.Int64
	large       atomic.Int64  // directions with large buffers
	pipes       chan pipe     // not in use. Those that weren't needed yet are zero.
	wanted      chan struct{} // Each that finds no pipe sends once.
	turns       turns

	mu      sync.Mutex
	proxies map[*Proxy]struct{}
}

// NewShared returns what proxies need.
func NewShared(limits Limits) (*Shared, error) {
	s := &Shared{
		limits: limits, pipes: make(chan pipe, limits.Pipes), wanted: make(chan struct{}),
		proxies: map[*Proxy]struct{}{},
	}
	for range limits.Pipes {
		s.pipes <- pipe{}
	}
	return s, s.turns.open()
}

// Update calls that of all proxies.
func (s *Shared) Update() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.proxies {
		p.Update()
	}
}

// Close closes what no proxy uses any more.
func (s *Shared) Close() {
	for range s.limits.Pipes {
		(<-s.pipes).close()
	}
	_ = s.turns.file.Close() // It has nothing that could fail.
}

// pipe waits for a pipe, and takes it.
func (s *Shared) pipe() (p pipe, err error) {
	select {
	case p = <-s.pipes:
	case s.wanted <- struct{}{}:
		p = <-s.pipes
	}
	if p == (pipe{}) {
		p, err = newPipe()
	}
	return p, err
}

// pipeWanted reports whether the caller has to give its pipe to one that waits for it.
func (s *Shared) pipeWanted() bool {
	select {
	case <-s.wanted:
		return true
	default:
		return false
	}
}

// pipe has two descriptors.
type pipe struct{ read, write int }

// pipeSize is how many bytes a connection moves before others have their turn. Pipes have this size.
const pipeSize = 1 << 16

func newPipe() (pipe, error) {
	var ends [2]int
	err := os.NewSyscallError("pipe2", unix.Pipe2(ends[:], unix.O_NONBLOCK|unix.O_CLOEXEC))
	return pipe{ends[0], ends[1]}, err
}

func (u pipe) close() {
	if u != (pipe{}) {
		_, _ = unix.Close(u.read), unix.Close(u.write)
	}
}

func splice(from, to, most int) (int, error) {
	n, err := unix.Splice(from, nil, to, nil, most, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	return max(int(n), 0), err
}

// turns let one goroutine work at a time, and all others of the program after each slice: an agent has one thread, so
// thousands of goroutines that can run would delay its elections.
type turns struct {
	last chan time.Time // when the last slice ended. Who works has received it.
	file *os.File       // an eventfd
	raw  syscall.RawConn
}

// slice is how long goroutines work until all others have had their turn. A flood adds about this to each step of an
// election.
const slice = 200 * time.Microsecond

func (t *turns) open() error {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("cannot carry connections: %w", os.NewSyscallError("eventfd", err))
	}
	t.last, t.file = make(chan time.Time, 1), os.NewFile(uintptr(fd), "eventfd")
	t.last <- time.Now()
	t.raw, err = t.file.SyscallConn()
	return err
}

// take waits until it is this goroutine's turn, and works. The work must not wait.
func (t *turns) take(work func()) {
	last := <-t.last
	work()
	if time.Since(last) > slice {
		t.yield()
		last = time.Now()
	}
	t.last <- last
}

// yield lets the other goroutines of the program run. runtime.Gosched isn't enough: while a goroutine can run, the
// runtime looks only every 10 ms for sockets that have become ready, such as those of peers. It looks at once if this
// goroutine waits for a file, too.
func (t *turns) yield() {
	waits := false
	_ = t.raw.Read(func(fd uintptr) bool {
		waits = !waits
		if waits {
			_, _ = unix.Write(int(fd), []byte{1, 0, 0, 0, 0, 0, 0, 0}) // Before Read, this could be forgotten.
		}
		return !waits
	})
}
