package live_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/chaos/live"
	"github.com/conclave-dev/conclave/internal/clusteraccess/portforward"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/program"
	"github.com/conclave-dev/conclave/internal/testing/testclient"
)

// electors are three processes with client-go's leader election on a real API server. The test plays kubelet and
// ReplicaSet controller: each process has a pod, and a pod that was deleted is replaced, with a process.
type electors struct {
	client.WithWatch

	t          *testing.T
	namespace  string
	binary     string
	kubeconfig string
	stale      bool
	owner      metav1.OwnerReference

	mu      sync.Mutex
	count   int
	pids    map[string]int    // by container
	urls    map[string]string // by pod
	running map[string]*exec.Cmd
}

func startElectors(t *testing.T, stale bool) *electors {
	need.Complete(t)
	const top = "../../.."
	must.Succeed(t, program.DependOnProgram(t.Context(), top, "./test/chaos/elector"))
	binary := filepath.Join(t.TempDir(), "elector")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", binary, "./test/chaos/elector")
	// As in all other builds, so that packages are compiled once, also beside the race detector.
	build.Dir, build.Env = top, append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	config := apiServer.Config(t)
	e := &electors{
		WithWatch: testclient.New(t, config), t: t, binary: binary, stale: stale, kubeconfig: writeKubeconfig(t, config),
		pids: map[string]int{}, urls: map[string]string{}, running: map[string]*exec.Cmd{},
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "web-"}}
	must.Succeed(e.t, e.Create(t.Context(), namespace))
	e.namespace = namespace.Name
	e.owner = metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "1", Controller: new(
		true)}
	for range 3 {
		must.Succeed(e.t, e.start(t.Context()))
	}
	end := repeat(t, "retry", 50*time.Millisecond, e.replace)
	t.Cleanup(func() {
		end()
		for _, process := range e.running {
			_ = process.Process.Kill()
			_ = process.Wait()
		}
	})
	return e
}

func writeKubeconfig(t *testing.T, config *rest.Config) string {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"test": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			"test": {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken},
		},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "test"}},
		CurrentContext: "test",
	}, path)
	must.Succeed(t, err)
	return path
}

// start starts a process, and creates a pod for it.
func (e *electors) start(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count++
	name := fmt.Sprintf("web-%d", e.count)
	container := strings.Repeat(fmt.Sprintf("%08d", e.count), 8)
	arguments := []string{"-kubeconfig", e.kubeconfig, "-namespace", e.namespace, "-identity", name +
		"_1", "-address", "127.0.0.1:0", "-duration", "3s"}
	if e.stale {
		arguments = append(arguments, "-stale")
	}
	process := exec.Command(e.binary, arguments...) //nolint:gosec // the test ends it
	process.Stderr = os.Stderr
	out, err := process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := process.Start(); err != nil {
		return err
	}
	e.running[name] = process
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return err
	}
	e.pids["containerd://"+container], e.urls[name] = process.Process.Pid, "http://"+strings.TrimSpace(address)
	e.pids[container] = process.Process.Pid
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: e.namespace, Name: name, Labels: map[string]string{"app": "web", "pod-template-hash": "1"},
		OwnerReferences: []metav1.OwnerReference{e.owner},
	}}
	pod.Spec.Containers, pod.Spec.NodeName = []corev1.Container{{Name: "web", Image: "any/thing:1"}}, "node-"+name
	if err := e.Create(ctx, pod); err != nil {
		return err
	}
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "web", Ready: true, ContainerID: "containerd://" + container,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}},
	}
	return e.Status().Update(ctx, pod)
}

// replace ends the processes of pods that were deleted, or whose processes have ended, and replaces them.
func (e *electors) replace(ctx context.Context) error {
	e.mu.Lock()
	names := maps.Clone(e.running)
	e.mu.Unlock()
	for name, process := range names {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name}}
		err := e.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		ended, readable := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process.Process.Pid))
		if err == nil && pod.DeletionTimestamp == nil && readable == nil && !strings.Contains(string(ended), ") Z ") {
			continue
		}
		_ = process.Process.Kill()
		_ = process.Wait()
		e.mu.Lock()
		delete(e.running, name)
		e.mu.Unlock()
		if err := client.IgnoreNotFound(e.Delete(ctx, pod, client.GracePeriodSeconds(0))); err != nil {
			return err
		}
		if err := e.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// forward returns the address of the process of a pod.
func (e *electors) forward(_ context.Context, name types.NamespacedName, _ int) (*portforward.Port, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return portforward.At(e.urls[name.Name], ""), nil
}

// run returns a run of faults for a source.
func (e *electors) run(source, selector string) *live.Run {
	e.t.Helper()
	leader, err := live.ParseLeader(source, e.namespace, e.forward, e.exec)
	must.Succeed(e.t, err)
	for began := time.Now(); ; { // Until the first election, a Lease can't tell the candidates.
		if err = leader.Choose(e.t.Context(), e, selector); err == nil || time.Since(began) > time.Minute {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	must.Succeed(e.t, err)
	return &live.Run{
		Client: e, Subject: leader, Seed: 1, Timeout: time.Minute, Pause: 0, Printf: e.t.Logf,
		Machines: live.Calls{
			Inject: func(kind string, containers []string) error {
				return e.signal(containers[0],
					map[string]syscall.Signal{chaos.Freeze: syscall.SIGSTOP, chaos.KillApp: syscall.SIGKILL}[kind])
			},
			Undo: func(_ string, containers []string) error { return e.signal(containers[0], syscall.SIGCONT) },
		},
	}
}

// signal sends a signal to the process of a container.
func (e *electors) signal(container string, signal syscall.Signal) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pids[container] == 0 {
		return fmt.Errorf("container %s has no process", container)
	}
	return syscall.Kill(e.pids[container], signal)
}

// exec runs a command on this computer, with the address of the process of the pod.
func (e *electors) exec(ctx context.Context, pod types.NamespacedName, _ string, command []string,
	in io.Reader, out io.Writer,
) error {
	e.mu.Lock()
	url := e.urls[pod.Name]
	e.mu.Unlock()
	process := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // the command of the test
	process.Env, process.Stdin, process.Stdout = append(os.Environ(), "URL="+url), in, out
	return process.Run()
}

// A process that was stopped for longer than its Lease, and works on when it continues, is what no look at the Lease
// can find.
func TestFrozenProcessThatWorksOnIsFound(t *testing.T) {
	t.Parallel()
	e := startElectors(t, true)
	r := e.run("http://8080/leader", "app=web")
	r.Kinds, r.Faults, r.Timeout = kinds(t, chaos.Freeze), 1, 15*time.Second
	result := do(t, r)
	if len(result.Violations) == 0 || result.Violations[0].Invariant != chaos.OneLeader ||
		result.Faults[0].TwoLeaders == nil || *result.Faults[0].TwoLeaders < 1000 {
		t.Errorf("got %+v, want two leaders for more than a second", result)
	}
	budget, err := chaos.ParseBudget("two-leaders > 0")
	must.Succeed(e.t, err)
	expect.Equalf(t, budget.Exceeded(result), "two-leaders > 0: got 1", "exceeded budget")
}

// soundFaults is larger in a campaign: go test ./internal/chaos/live -run TestSoundElectors -timeout 1h -args
// -sound-faults 330.
var soundFaults = flag.Int("sound-faults", 3, "how many faults hit sound electors, for each source")

// The same faults on processes that stop in time: nothing is reported, whatever says who leads.
func TestSoundElectorsAreMeasuredByEachSource(t *testing.T) {
	for source, selector := range map[string]string{
		"lease/elector": "", "http://8080/leader": "app=web",
		`exec:test "$(curl -s -o /dev/null -w '%{http_code}' $URL)" = 200`: "app=web",
	} {
		t.Run(strings.SplitN(source, ":", 2)[0], func(t *testing.T) {
			t.Parallel() // They wait for Leases.
			e := startElectors(t, false)
			r := e.run(source, selector)
			names := []string{chaos.ForcePod, chaos.Freeze, chaos.Two}
			r.Kinds, r.Faults = kinds(t, names...), *soundFaults
			result := do(t, r)
			if len(result.Violations) > 0 || len(result.Faults) != *soundFaults || result.Members != 3 ||
				result.Candidates != "app=web" {
				t.Errorf("got %+v, want %d faults without a violation", result, *soundFaults)
			}
			for i := range result.Faults {
				if f := &result.Faults[i]; f.Refused != "" || f.Elected == nil || *f.Elected < 500 ||
					f.Settled == nil || f.TwoLeaders != nil {
					t.Errorf("got %+v, want that another pod leads when the Lease has expired", f)
				}
			}
		})
	}
}

// Something else injects the faults. A change is measured, and two leaders are found, as with faults of its own.
func TestChangesAreObservedWhileOthersInjectFaults(t *testing.T) {
	for name, c := range map[string]struct {
		source, selector string
		stale            bool
	}{"a sound Lease": {"lease/elector", "", false}, "a process that works on": {"http://8080/leader", "app=web", true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // They wait for Leases.
			e := startElectors(t, c.stale)
			r := e.run(c.source, c.selector)
			injected := make(chan error, 1)
			r.Printf = func(format string, args ...any) {
				if t.Logf(format, args...); strings.Contains(format, "observing for") {
					go func() { injected <- e.freezeLeader() }()
				}
			}
			r.Timeout = 5 * time.Second
			result, err := r.Observe(t.Context(), 15*time.Second)
			must.Succeed(e.t, err)
			must.Succeed(e.t, <-injected)
			if len(result.Summary) != 1 || result.Faults[0].Elected == nil {
				t.Fatalf("got %+v, want a change of the leader", result)
			}
			two := result.Faults[0].TwoLeaders != nil && *result.Faults[0].TwoLeaders > 500
			if c.stale != (len(result.Violations) > 0) || c.stale != two ||
				!c.stale && (*result.Faults[0].Elected < 2000 || len(result.Faults) != 1) {
				t.Errorf("got %+v, want two leaders: %t", result, c.stale)
			}
		})
	}
}

// freezeLeader stops the process of the holder until another process holds the Lease.
func (e *electors) freezeLeader() error {
	var lease coordinationv1.Lease
	read := func() string {
		if err := e.Get(context.Background(), types.NamespacedName{Namespace: e.namespace, Name: "elector"},
			&lease); err != nil || lease.Spec.HolderIdentity == nil {
			return ""
		}
		return strings.TrimSuffix(*lease.Spec.HolderIdentity, "_1")
	}
	holder := read()
	e.mu.Lock()
	process := e.running[holder]
	e.mu.Unlock()
	if process == nil {
		return fmt.Errorf("no process holds the Lease: %q", holder)
	}
	if err := process.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for began := time.Now(); read() == holder && time.Since(began) < time.Minute; {
		time.Sleep(50 * time.Millisecond)
	}
	return process.Process.Signal(syscall.SIGCONT)
}

// A label is what an object says. Two pods with it are reported, and are no violation.
func TestLabelsOfTwoPodsAreMeasured(t *testing.T) {
	t.Parallel()
	e := startElectors(t, false)
	label := func(name, value string) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name}}
		must.Succeed(e.t, e.Patch(context.Background(), pod,
			client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"role":%q}}}`, value))))
	}
	label("web-1", "leader")
	r := e.run("label:role=leader", "")
	r.Kinds, r.Faults = kinds(t, chaos.Freeze), 1 // Nobody reacts to it but this test.
	r.Machines = live.Calls{
		Inject: func(string, []string) error {
			label("web-2", "leader")
			time.AfterFunc(2*time.Second, func() { label("web-1", "") })
			return nil
		},
		Undo: func(string, []string) error { return nil },
	}
	result := do(t, r)
	f := &result.Faults[0]
	if len(result.Violations) > 0 || f.Coordinator != "web-2" || f.Elected == nil || f.TwoLeaders == nil ||
		*f.TwoLeaders < 500 || f.Settled == nil {
		t.Errorf("got %+v, want web-2 after some time with two labels", result)
	}
}
