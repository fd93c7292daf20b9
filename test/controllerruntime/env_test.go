package controllerruntime

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/apiserver"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// replicas are the members that have a manager. The third member only votes: without a session it can't be elected.
var replicas = []string{"a", "b"}

// env is an API server, three agents, and two replicas of a manager.
type env struct {
	*agentcluster.Cluster

	t          testing.TB
	api        *envtest.Environment
	kubeconfig string
	file       string
	managers   map[string]*process

	// lines are those of the file, and offset is where the next ones begin. overlaps are lines with an older token than
	// one before.
	lines    []line
	offset   int64
	overlaps []string
	// warm are the processes whose caches are filled.
	warm map[int]bool
	// sizes are those that a process has written, goroutines and heapBytes.
	sizes map[string][]int64
}

type line struct {
	token uint64
	pid   int
	what  string
	// nanos is the time of the write.
	nanos int64
}

type process struct {
	*exec.Cmd

	log   *testwait.Log
	ended chan struct{}
}

// newAPI returns an env without agents.
func newAPI(t testing.TB) *env {
	t.Helper()
	folder := t.TempDir()
	e := &env{
		t: t, api: apiserver.Start(t), kubeconfig: filepath.Join(folder, "kubeconfig"), file: filepath.Join(folder, "file"),
		managers: map[string]*process{}, warm: map[int]bool{}, sizes: map[string][]int64{},
	}
	must.Succeed(t, os.WriteFile(e.kubeconfig, e.api.KubeConfig, 0o600))
	must.Succeed(t, os.WriteFile(e.file, nil, 0o600))
	clients := kubernetes.NewForConfigOrDie(e.api.Config)
	work := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "work", Namespace: metav1.NamespaceDefault}}
	_, err := clients.CoreV1().ConfigMaps(work.Namespace).Create(t.Context(), work, metav1.CreateOptions{})
	must.Succeed(t, err)
	return e
}

func newEnv(t testing.TB, mode string) *env {
	t.Helper()
	e := newAPI(t)
	e.Cluster = agentcluster.Start(t, agentcluster.Options{Agents: 3, Group: agentcluster.Group{
		Safety:      agentcluster.Safety{Mode: mode},
		Preemption:  agentcluster.Preemption{Policy: "Never"},
		Application: agentcluster.Application{Session: "Required"},
	}})
	must.Succeed(t, e.Start())
	must.Succeed(t, e.AwaitConnected(testwait.Context(t)))
	return e
}

// start starts the manager beside an agent.
func (e *env) start(member string, variables ...string) {
	e.t.Helper()
	e.startAt("http://"+e.Agent(member).API, member, variables...)
}

func (e *env) startAt(agent, member string, variables ...string) {
	e.t.Helper()
	e.launch(exec.Command("/proc/self/exe"), agent, member, variables...)
}

func (e *env) launch(command *exec.Cmd, agent, member string, variables ...string) {
	e.t.Helper()
	p := &process{Cmd: command, log: &testwait.Log{}, ended: make(chan struct{})}
	p.Env = append(os.Environ(), agentVariable+"="+agent, "CONCLAVE_AGENT="+agent, fileVariable+"="+e.file,
		kubeconfigVariable+"="+e.kubeconfig)
	p.Env = append(p.Env, variables...)
	p.Stdout, p.Stderr = p.log, p.log
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must.Succeed(e.t, p.Start())
	e.managers[member] = p
	go func() {
		defer close(p.ended)
		_ = p.Wait() // Tests look at its status.
	}()
	e.t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.ended
		if e.t.Failed() {
			e.t.Logf("manager of %s: %v\n%s", member, p.ProcessState, p.log)
		}
	})
}

// read reads new lines of the file, and notes each write with an older token than one before it.
func (e *env) read() {
	e.t.Helper()
	file, err := os.Open(e.file)
	must.Succeed(e.t, err)
	defer file.Close()
	info, err := file.Stat()
	must.Succeed(e.t, err)
	text := make([]byte, info.Size()-e.offset)
	_, err = file.ReadAt(text, e.offset)
	must.Succeed(e.t, err)
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	e.offset += int64(len(text))
	for text := range strings.Lines(string(text)) {
		var l line
		_, err := fmt.Sscan(text, &l.token, &l.pid, &l.what, &l.nanos)
		must.Succeed(e.t, err)
		switch l.what {
		case warm:
			e.warm[l.pid] = true
			continue
		case overlap:
			e.overlaps = append(e.overlaps, fmt.Sprintf("process %d began while another one worked", l.pid))
			continue
		case goroutines, heapBytes:
			e.sizes[l.what] = append(e.sizes[l.what], l.nanos)
			continue
		}
		if l.token < e.last().token {
			e.overlaps = append(e.overlaps,
				fmt.Sprintf("process %d %s with token %d after a line with %d", l.pid, l.what, l.token, e.last().token))
			continue
		}
		e.lines = append(e.lines, l)
	}
}

// last returns the last line with the highest token.
func (e *env) last() line {
	if len(e.lines) == 0 {
		return line{}
	}
	return e.lines[len(e.lines)-1]
}

// await waits until a manager with a higher token has reconciled. It returns the first line that says so, and the
// manager's member.
func (e *env) await(above uint64) (first line, member string) {
	e.t.Helper()
	testwait.NoError(e.t, func() error {
		e.read()
		for _, first = range e.lines {
			if first.token > above && first.what == reconciled {
				return nil
			}
		}
		return errors.New("no manager has reconciled with a higher token")
	})
	return first, e.memberOf(first.pid)
}

// awaitReady waits until the manager of a member can be elected, and its caches are filled.
func (e *env) awaitReady(member string) {
	e.t.Helper()
	testwait.Until(e.t, "the caches of "+member+" are filled",
		func() bool { e.read(); return e.warm[e.managers[member].Process.Pid] })
	testwait.NoError(e.t, func() error {
		status, err := e.Status(e.t.Context(), member)
		if err != nil {
			return err
		}
		for _, row := range status.Processes {
			if row.Name == member && row.Ineligible == "" {
				return nil
			}
		}
		return fmt.Errorf("%s is not eligible: %+v", member, status.Processes)
	})
}

func (e *env) memberOf(pid int) string {
	for member, p := range e.managers {
		if p.Process.Pid == pid {
			return member
		}
	}
	return ""
}

// awaitWork waits until the leader has written further lines.
func (e *env) awaitWork(lines int) {
	e.t.Helper()
	e.read()
	token, enough := e.last().token, len(e.lines)+lines
	testwait.Until(e.t, "the leader works", func() bool { e.read(); return len(e.lines) >= enough })
	expect.Equalf(e.t, e.last().token, token, "token of the last line: the leader goes on")
}

// awaitEnd waits until a manager has ended, and checks its status.
func (e *env) awaitEnd(member string, want int) {
	e.t.Helper()
	p := e.managers[member]
	testwait.Receive(e.t, "the end of the manager of "+member, p.ended)
	expect.Equalf(e.t, p.ProcessState.ExitCode(), want, "exit status of the manager of %s", member)
}

// stepDown makes the leader hand over to the other replica, once that is ready.
func (e *env) stepDown(leader string) {
	e.t.Helper()
	testwait.NoError(e.t, func() error {
		_, err := e.StepDown(testwait.Context(e.t), leader, other(leader))
		return err
	})
}

// signalAPIServer sends it a signal. SIGKILL ends it, since a graceful stop waits for its clients.
func (e *env) signalAPIServer(signal syscall.Signal) {
	e.t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	must.Succeed(e.t, err)
	for _, list := range lists {
		children, _ := os.ReadFile(list) // The thread may have ended.
		for child := range strings.FieldsSeq(string(children)) {
			name, _ := os.ReadFile("/proc/" + child + "/comm")
			if strings.TrimSpace(string(name)) == "kube-apiserver" {
				pid, err := strconv.Atoi(child)
				must.Succeed(e.t, err)
				must.Succeed(e.t, syscall.Kill(pid, signal))
				return
			}
		}
	}
	e.t.Fatal("there is no API server")
}

func other(member string) string {
	if member == replicas[0] {
		return replicas[1]
	}
	return replicas[0]
}
