package controllerruntime

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/conclave-dev/conclave/client"
	"github.com/conclave-dev/conclave/controllerruntime/lease"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// kindVariable is set for replicas with a Lease.
const kindVariable = "MANAGER_KIND"

const (
	// kindOld only knows the Lease. The others hold it, too, when they are coordinator. kindExec runs kindOld, unchanged,
	// and kindAlso kindPlain, which knows no election.
	kindOld     = "old"
	kindExec    = "exec"
	kindAlso    = "also"
	kindPlain   = "plain"
	kindClient  = "client"
	kindManager = "manager"

	// overlap is the line of a replica that began while another one worked.
	overlap = "overlap"
)

// The durations of the Lease.
var (
	leaseDuration = 2 * time.Second
	renewDeadline = 1200 * time.Millisecond
	retryPeriod   = 200 * time.Millisecond
)

var kills = flag.Int("kills", 20, "how many replicas with a Lease are killed")

// TestLeaseDuringMigration: replicas of all kinds are killed, terminated and replaced at random moments, and the API
// server stops for a while. One of them works at most, and one goes on each time.
func TestLeaseDuringMigration(t *testing.T) {
	e := newEnv(t, "Majority")
	members := []string{"a", "b", "c"}
	kinds := []string{kindOld, kindAlso, kindClient, kindManager, kindExec}
	account := e.serviceAccount()
	self, err := os.Executable()
	must.Succeed(t, err)
	kindOf := map[string]string{}
	start := func(member, kind string) {
		kindOf[member] = kind
		agent := e.Agent(member)
		command, program := exec.Command("/proc/self/exe"), kind
		switch kind {
		case kindExec:
			command, program = exec.Command(agent.Binary(), "exec", "--group", "ledger", "--", self), kindOld
		case kindAlso:
			command, program = exec.Command(agent.Binary(), "exec", "--group", "ledger", "--also-lease", "old-ledger",
				"--lease-duration", leaseDuration.String(), "--service-account", account, "--", self), kindPlain
		}
		e.launch(command, "http://"+agent.API, member, kindVariable+"="+program)
	}
	for i, member := range members {
		start(member, kinds[i])
	}
	worked := map[string]int{}
	for i := range *kills {
		worked[cmp.Or(kindOf[e.awaitWorker()], kindExec)]++ // The worker of exec is a child.
		time.Sleep(mathrand.N(leaseDuration))               // The moment is random.
		member := e.memberOf(e.last().pid)
		if member == "" || mathrand.N(3) == 0 {
			member = members[mathrand.N(3)]
		}
		signal := syscall.SIGKILL
		switch mathrand.N(4) {
		case 0:
			signal = syscall.SIGTERM
		case 1:
			e.signalAPIServer(syscall.SIGSTOP)
			time.Sleep(mathrand.N(2 * leaseDuration))
			e.signalAPIServer(syscall.SIGCONT)
		}
		if err := e.managers[member].Process.Signal(signal); !errors.Is(err, os.ErrProcessDone) {
			must.Succeed(t, err)
		}
		testwait.Receive(t, "the end of "+member, e.managers[member].ended)
		for _, member := range members {
			select {
			case <-e.managers[member].ended:
				start(member, kinds[mathrand.N(len(kinds))])
			default:
			}
		}
		e.read()
		if len(e.overlaps) > 0 {
			t.Fatalf("after %d kills: %s", i+1, e.overlaps[0])
		}
	}
	e.awaitWorker()
	t.Logf("work after kills: %v", worked)
}

// TestLeaseThatIsNotRenewed: a replica that the API server doesn't answer stops before another one has the Lease, and
// goes on later without a restart, or exits if it doesn't stop.
func TestLeaseThatIsNotRenewed(t *testing.T) {
	for _, kind := range []string{kindClient, kindManager} {
		for _, stuck := range []bool{false, true} {
			t.Run(kind, func(t *testing.T) {
				e := newEnv(t, "Majority")
				p := e.proxy()
				variables := []string{kindVariable + "=" + kind, kubeconfigVariable + "=" + p.kubeconfig}
				if stuck {
					variables = append(variables, stuckVariable+"=true")
				}
				e.start("a", variables...)
				expect.Equalf(t, e.awaitWorker(), "a", "worker")
				e.start("b", kindVariable+"="+kindOld)
				p.gate.Lock()
				testwait.Until(t, "the other replica works", func() bool {
					e.read()
					return e.last().pid == e.managers["b"].Process.Pid || len(e.overlaps) > 0
				})
				p.gate.Unlock()
				expect.Lenf(t, e.overlaps, 0, "replicas that worked at the same time")
				if stuck {
					e.awaitEnd("a", 1)
				} else {
					must.Succeed(t, e.managers["b"].Process.Kill())
					testwait.Until(t, "the first replica works again", func() bool {
						e.read()
						return e.last().pid == e.managers["a"].Process.Pid
					})
				}
			})
		}
	}
}

// serviceAccount returns a directory with the token of an account that has the permissions that --also-lease needs.
func (e *env) serviceAccount() string {
	e.t.Helper()
	ctx, clients, folder := e.t.Context(), kubernetes.NewForConfigOrDie(e.api.Config), e.t.TempDir()
	const namespace = metav1.NamespaceDefault
	named := metav1.ObjectMeta{Name: "holder", Namespace: namespace}
	_, err := clients.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: named},
		metav1.CreateOptions{})
	must.Succeed(e.t, err)
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
		{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{"old-ledger"},
			Verbs: []string{"get", "update"},
		},
	}
	_, err = clients.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: named, Rules: rules},
		metav1.CreateOptions{})
	must.Succeed(e.t, err)
	_, err = clients.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: named, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: named.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: named.Name, Namespace: namespace}},
	}, metav1.CreateOptions{})
	must.Succeed(e.t, err)
	token, err := clients.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, named.Name,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must.Succeed(e.t, err)
	for name, text := range map[string]string{
		"token": token.Status.Token, "namespace": namespace, "ca.crt": string(e.api.Config.CAData),
	} {
		must.Succeed(e.t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	host, port, err := net.SplitHostPort(strings.Trim(strings.TrimPrefix(e.api.Config.Host, "https:"), "/"))
	must.Succeed(e.t, err)
	e.t.Setenv("KUBERNETES_SERVICE_HOST", host)
	e.t.Setenv("KUBERNETES_SERVICE_PORT", port)
	return folder
}

// proxy is between a process and the API server, and passes nothing on while its gate is locked.
type proxy struct {
	kubeconfig string
	gate       sync.RWMutex
}

func (e *env) proxy() *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(e.t, err)
	e.t.Cleanup(func() { _ = listener.Close() })
	target := strings.Trim(strings.TrimPrefix(e.api.Config.Host, "https:"), "/")
	p := &proxy{kubeconfig: e.kubeconfig + "-proxy"}
	text := strings.ReplaceAll(string(e.api.KubeConfig), target, listener.Addr().String())
	must.Succeed(e.t, os.WriteFile(p.kubeconfig, []byte(text), 0o600))
	pass := func(from, to net.Conn) {
		defer from.Close()
		defer to.Close()
		for buffer := make([]byte, 64<<10); ; {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			p.gate.RLock()
			_, err = to.Write(buffer[:n])
			p.gate.RUnlock()
			if err != nil {
				return
			}
		}
	}
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", target)
			if err != nil {
				_ = from.Close()
				continue
			}
			go pass(from, to)
			go pass(to, from)
		}
	}()
	return p
}

// awaitWorker waits until some replica works, and returns its member.
func (e *env) awaitWorker() (member string) {
	e.t.Helper()
	e.read()
	lines := len(e.lines)
	testwait.Until(e.t, "a replica works", func() bool { e.read(); return len(e.lines) > lines })
	return e.memberOf(e.last().pid)
}

// alone works until ctx ends. A lock of the kernel, which ends with its process, shows whether another process works.
func (p *program) alone(ctx context.Context) error {
	file, err := os.Open(p.file.Name())
	if err != nil {
		return err
	}
	defer file.Close()
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return p.writeNow(overlap)
	}
	return work(ctx, p.writeNow)
}

// leaseConfig returns what a user of client-go has.
func (p *program) leaseConfig() (leaderelection.LeaderElectionConfig, error) {
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, metav1.NamespaceDefault, "old-ledger",
		resourcelock.ResourceLockConfig{Identity: rand.Text()}, p.config, renewDeadline)
	return leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
	}, err
}

func (p *program) runClient(ctx context.Context) error {
	config, err := p.leaseConfig()
	if err != nil {
		return err
	}
	return client.Run(ctx, "ledger", lease.AlsoHold(config, func(ctx context.Context, _ uint64) error {
		return p.alone(ctx)
	}), client.At(os.Getenv(agentVariable)))
}

func (p *program) newHolder() (manager.Manager, error) {
	mgr, err := ctrl.NewManager(p.config, p.election.Options(ctrl.Options{
		LeaderElectionID: "old-ledger", LeaderElectionNamespace: metav1.NamespaceDefault,
		LeaseDuration: &leaseDuration, RenewDeadline: &renewDeadline, RetryPeriod: &retryPeriod,
		Metrics: server.Options{BindAddress: "0"},
	}))
	if err != nil {
		return nil, err
	}
	return mgr, mgr.Add(manager.RunnableFunc(p.alone))
}

// runOld is client-go's elector. With ReleaseOnCancel, it would release the Lease before the work has stopped, if it
// couldn't renew the Lease and the API server returns.
func (p *program) runOld(ctx context.Context) error {
	config, err := p.leaseConfig()
	if err != nil {
		return err
	}
	config.Callbacks = leaderelection.LeaderCallbacks{
		OnStartedLeading: func(context.Context) {
			_ = p.alone(ctx) // It returns when ctx has ended.
			os.Exit(0)
		},
		OnStoppedLeading: func() { os.Exit(1) },
	}
	leaderelection.RunOrDie(ctx, config)
	return nil
}
