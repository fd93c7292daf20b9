package machine

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// restartDelay is the delay before a program is restarted.
const restartDelay = time.Second

// Init runs the first process of a machine. It returns only if it cannot set up the machine.
func Init(specPath string) error {
	spec, err := ReadSpec(specPath)
	if err != nil {
		return err
	}
	// With cgroups of version 2, a cgroup that delegates controllers must not contain processes. Wait until the launcher has
	// exited.
	if _, err := io.Copy(io.Discard, os.NewFile(launcherGoneFD, "launcher")); err != nil {
		return fmt.Errorf("cannot wait for the exit of the launcher: %w", err)
	}
	if err := setUp(spec); err != nil {
		return err
	}
	if spec.Relay != nil {
		listener, err := net.FileListener(os.NewFile(listenerFD, "relay"))
		if err != nil {
			return fmt.Errorf("cannot use the listener of the relay: %w", err)
		}
		go relay(listener, spec.Relay.Dial)
	}
	log.Printf("set up %s", spec.Name)
	newSupervisor(spec.Programs).run()
	return nil
}

// supervisor starts and restarts the programs of a machine. It also reaps all orphaned processes, which become its
// children.
type supervisor struct {
	mu       sync.Mutex
	children map[int]Program // The children that are programs of the machine, by process ID.
	started  chan struct{}   // Notifies the reaper that there are children.
}

func newSupervisor(programs []Program) *supervisor {
	s := &supervisor{children: map[int]Program{}, started: make(chan struct{}, 1)}
	for _, program := range programs {
		go s.start(program)
	}
	return s
}

// run reaps children forever.
func (s *supervisor) run() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch err {
		case nil:
			s.reaped(pid, status)
		case unix.ECHILD:
			<-s.started
		case unix.EINTR:
		default:
			log.Printf("cannot wait for children: %v", err)
			time.Sleep(restartDelay)
		}
	}
}

func (s *supervisor) reaped(pid int, status unix.WaitStatus) {
	s.mu.Lock() // A child may exit before try has recorded it; try holds the lock until then.
	program, found := s.children[pid]
	delete(s.children, pid)
	s.mu.Unlock()
	if !found {
		return
	}
	log.Printf("restarting %s: exited with %s", program.Name, describe(status))
	go func() {
		time.Sleep(restartDelay)
		s.start(program)
	}()
}

func describe(status unix.WaitStatus) string {
	if status.Signaled() {
		return "signal " + status.Signal().String()
	}
	return fmt.Sprintf("code %d", status.ExitStatus())
}

func (s *supervisor) start(program Program) {
	await(program.After)
	for {
		err := s.try(program)
		if err == nil {
			return
		}
		log.Printf("cannot start %s; retrying: %v", program.Name, err)
		time.Sleep(restartDelay)
	}
}

func (s *supervisor) try(program Program) error {
	logFile, err := os.OpenFile(filepath.Join(LogDir, program.Name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer logFile.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	// Don't use os/exec: its Wait would race with the reaper.
	s.mu.Lock()
	defer s.mu.Unlock()
	pid, err := syscall.ForkExec(program.Path, append([]string{program.Path}, program.Args...), &syscall.ProcAttr{
		Dir:   "/",
		Env:   environment(),
		Files: []uintptr{null.Fd(), logFile.Fd(), logFile.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return err
	}
	s.children[pid] = program
	select {
	case s.started <- struct{}{}:
	default:
	}
	return nil
}

// environment returns the environment of the programs. The machine's own tools come first in PATH, because kubelet and
// containerd find other programs there.
func environment() []string {
	search := []string{}
	for _, component := range []string{"containerd", "runc", "cni", "kubernetes"} {
		search = append(search, filepath.Join(BinDir, component))
	}
	search = append(search, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
	return []string{"PATH=" + strings.Join(search, ":"), "HOME=/run", "TMPDIR=/run"}
}

// await returns when the dependency of a program is available. It has no timeout, because a node may boot long before the
// control plane.
func await(dependency string) {
	for dependency != "" && !available(dependency) {
		time.Sleep(50 * time.Millisecond)
	}
}

func available(dependency string) bool {
	kind, where, _ := strings.Cut(dependency, ":")
	if kind == "ready" {
		return ready(where)
	}
	connection, err := net.DialTimeout(kind, where, time.Second)
	if err != nil {
		return false
	}
	connection.Close()
	return true
}

// ready reports whether an API server is ready. The request contains no secrets, so the certificate isn't verified.
func ready(address string) bool {
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // See above.
		DisableKeepAlives: true,
	}
	client := http.Client{Transport: transport, Timeout: time.Second}
	response, err := client.Get("https://" + address + "/readyz")
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// relay forwards each connection to an address in the machine.
func relay(listener net.Listener, address string) {
	for {
		outer, err := listener.Accept()
		if err != nil {
			log.Printf("relay: %v", err)
			time.Sleep(restartDelay)
			continue
		}
		go func() {
			defer outer.Close()
			inner, err := net.DialTimeout("tcp", address, 5*time.Second)
			if err != nil {
				return // The deferred Close closes the connection of the client.
			}
			defer inner.Close()
			join(outer, inner)
		}()
	}
}

// join copies data in both directions. When one side closes its direction, join closes it on the other side.
func join(a, b net.Conn) {
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			_, _ = io.Copy(pair[1], pair[0]) // Both ends detect a broken connection themselves.
			if half, ok := pair[1].(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
		})
	}
	both.Wait()
}
