package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/serve/authority"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestHostileAgentsDontExhaustManager: the hundred pods of a tenant send reports of a megabyte with empty rows, as
// often as the manager connects. A row takes 3 bytes there, and far more in memory. The manager must stay below its
// memory limit, elect in another namespace about as fast as before, enroll and inject.
func TestHostileAgentsDontExhaustManager(t *testing.T) {
	const (
		pods        = 100
		elections   = 8  // fewer than a group has at once
		lagMax      = 15 // times as long as before the attack
		connections = 4 * pods
		memoryLimit = 512 << 20 // that of config/manager
	)
	t.Setenv("MEMORY_LIMIT", fmt.Sprint(memoryLimit))
	t.Setenv("GOGC", "50")
	e := newEnv(t)
	e.start()
	e.eventually("the manager is ready", e.ready)
	e.createGroup("default", "ledger", 1)
	status, text := e.enroll(t) // This creates the pod.
	if status != http.StatusOK {
		t.Fatal(status, text)
	}
	certificates := e.certificates()
	honest := e.newAgent(types.NamespacedName{Namespace: "default", Name: "ledger-0"}, "127.0.5.1", certificates)
	must.Succeed(t, honest.Run(t.Context()))
	t.Cleanup(func() { _ = honest.Stop() })
	term := uint64(0)
	lag := func() time.Duration { // the median
		var all []time.Duration
		for range elections {
			term++
			all = append(all, e.expectElection(honest, term))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	before := lag()

	e.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "greedy"}})
	e.createGroup("greedy", "ledger", pods)
	var sent atomic.Int32
	attack := "HTTP/1.1 200 OK\r\n\r\nevent: group\ndata: {\"group\":\"ledger\",\"processes\":[{}" +
		strings.Repeat(",{}", 1<<20/3-100) + "]}\n\n"
	for i := range pods {
		pod := types.NamespacedName{Namespace: "greedy", Name: fmt.Sprint("ledger-", i)}
		e.createPod(pod)
		err := e.newAgent(pod, fmt.Sprint("127.0.4.", i+1), certificates).ServeRaw(t.Context(), func(conn net.Conn) {
			for sent.Add(1); ; {
				if _, err := io.WriteString(conn, attack); err != nil {
					return
				}
			}
		})
		must.Succeed(t, err)
	}
	e.eventually("the attack has begun", func() error {
		if n := sent.Load(); n < pods {
			return fmt.Errorf("%d connections", n)
		}
		return nil
	})
	during := lag()
	t.Logf("lag of the status of another tenant: %s, and %s before the attack", during, before)
	if during > lagMax*before {
		t.Errorf("got a lag of %s during the attack, want at most %d times that before, %s", during, lagMax, before)
	}
	for sent.Load() < connections {
		term++
		e.expectElection(honest, term)
	}
	e.expectInjection(t)
	if peak := e.peakMemory(); peak > memoryLimit {
		t.Errorf("got a peak of %d MiB of memory, want at most %d MiB", peak>>20, memoryLimit>>20)
	} else {
		t.Logf("peak of memory: %d MiB", peak>>20)
	}
}

func (e *env) createGroup(in, name string, members int) {
	e.t.Helper()
	group := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: name}}
	for i := range members {
		group.Spec.Members = append(group.Spec.Members, v1.Member{Pod: fmt.Sprint(name, "-", i), Priority: int32(i + 1)})
	}
	e.create(group)
}

// certificates returns a factory that issues certificates with the manager's CA.
func (e *env) certificates() *fakeagent.CertificateFactory {
	e.t.Helper()
	var secret corev1.Secret
	e.eventually("there is a CA", func() error { return e.get(&secret, namespace, authority.SecretName) })
	root := identity.Pair{Cert: secret.Data["ca.crt"], Key: secret.Data["ca.key"]}
	ca, err := identity.ParseCA(root)
	must.Succeed(e.t, err)
	return &fakeagent.CertificateFactory{Authority: ca, Authorities: root.Cert}
}

// newAgent gives an existing pod an address, and returns an agent for it that doesn't run yet.
func (e *env) newAgent(pod types.NamespacedName, ip string,
	certificates *fakeagent.CertificateFactory,
) *fakeagent.Agent {
	e.t.Helper()
	agent, err := fakeagent.New(fakeagent.Identity{
		Namespace: pod.Namespace, Pod: pod.Name, Groups: []string{"ledger"},
		Address: fmt.Sprintf("%s:%d", ip, control.OperatorPort),
	}, certificates)
	must.Succeed(e.t, err)
	running := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	patch := fmt.Sprintf(`{"status": {"phase": "Running", "podIP": %q, "podIPs": [{"ip": %q}]}}`, ip, ip)
	// An update would conflict with the manager's writes.
	must.Succeed(e.t, e.Status().Patch(e.t.Context(), &running, client.RawPatch(types.MergePatchType, []byte(patch))))
	return agent
}

// expectElection makes the only member of the group ledger report that it was elected, and waits for the status.
func (e *env) expectElection(agent *fakeagent.Agent, term uint64) (took time.Duration) {
	e.t.Helper()
	begin := time.Now()
	e.eventually(fmt.Sprint("the status has term ", term), func() error {
		leadership := fakeagent.Leadership{Coordinator: "ledger-0", Term: term, ElectedAt: time.Now()}
		if report, ok := agent.Report("ledger"); ok && report.Term < term {
			if err := agent.SetLeadership("ledger", leadership); err != nil {
				return err
			}
		}
		var group v1.ElectionGroup
		err := e.get(&group, "default", "ledger")
		if err == nil && (group.Status.Coordinator == nil || group.Status.Coordinator.Term != int64(term)) {
			err = errors.New(fmt.Sprint("coordinator ", group.Status.Coordinator, group.Status.Conditions))
		}
		return err
	})
	return time.Since(begin)
}
