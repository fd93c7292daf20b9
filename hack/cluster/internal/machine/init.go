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

// restartDelay is how long a program that ended stays away.
const restartDelay = time.Second

// Init is what the first process of a machine does. It only returns if the machine can't be set up.
func Init(specPath string) error {
	spec, err := ReadSpec(specPath)
	if err != nil {
		return err
	}
	// On a cgroup of version 2, nobody may be in the cgroup that is about to be divided.
	if _, err := io.Copy(io.Discard, os.NewFile(launcherGoneFD, "launcher")); err != nil {
		return fmt.Errorf("wait for the end of the launcher: %w", err)
	}
	if err := setUp(spec); err != nil {
		return err
	}
	if spec.Relay != nil {
		listener, err := net.FileListener(os.NewFile(listenerFD, "relay"))
		if err != nil {
			return fmt.Errorf("take over the listener of the relay: %w", err)
		}
		go relay(listener, spec.Relay.Dial)
	}
	log.Printf("%s is set up", spec.Name)
	newSupervisor(spec.Programs).run()
	return nil
}

// supervisor starts the programs of a machine, and reaps: those that were left by their parents become its children.
type supervisor struct {
	mu       sync.Mutex
	children map[int]Program // Those that it started itself, and that are to be started again.
	started  chan struct{}   // Tells the reaper that there is something to wait for.
}

func newSupervisor(programs []Program) *supervisor {
	s := &supervisor{children: map[int]Program{}, started: make(chan struct{}, 1)}
	for _, program := range programs {
		go s.start(program)
	}
	return s
}

// run reaps for ever.
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
			log.Printf("wait for children: %v", err)
			time.Sleep(restartDelay)
		}
	}
}

func (s *supervisor) reaped(pid int, status unix.WaitStatus) {
	s.mu.Lock() // A child may end before start has noted it: start holds this lock meanwhile.
	program, mine := s.children[pid]
	delete(s.children, pid)
	s.mu.Unlock()
	if !mine {
		return
	}
	log.Printf("%s ended (%s), starting it again", program.Name, describe(status))
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
		log.Printf("start %s: %v", program.Name, err)
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
	// Not os/exec: it would wait for its child itself, in a race with the reaper.
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

// environment has the machine's own tools first: kubelet and containerd look for others by name.
func environment() []string {
	search := []string{}
	for _, component := range []string{"containerd", "runc", "cni", "kubernetes"} {
		search = append(search, filepath.Join(BinDir, component))
	}
	search = append(search, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
	return []string{"PATH=" + strings.Join(search, ":"), "HOME=/run", "TMPDIR=/run"}
}

// await returns when what a program depends on is there. It has no bound: a node that boots while the control plane is
// away shall come up when it is back.
func await(dependency string) {
	for dependency != "" && !there(dependency) {
		time.Sleep(50 * time.Millisecond)
	}
}

func there(dependency string) bool {
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

// ready asks an API server whether it has all that it serves. Nothing secret is said, so its certificate doesn't matter.
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

// relay gives each connection of the host one to the address in the machine.
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
				return // The host sees its connection closed, as it would without a relay.
			}
			defer inner.Close()
			join(outer, inner)
		}()
	}
}

// join copies both ways, and passes on that one side has nothing more to say.
func join(a, b net.Conn) {
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			_, _ = io.Copy(pair[1], pair[0]) // A broken connection is for its two ends to notice.
			if half, ok := pair[1].(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
		})
	}
	both.Wait()
}
