package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// fastRotationTag is the tag of a manager whose certificates are valid for seconds: all intervals of a rotation follow
// from that.
const fastRotationTag = "e2e-rotation"

// caSecret is the Secret with the CAs.
type caSecret struct {
	Metadata struct{ Annotations map[string]string }
	Data     struct {
		SigningCert []byte `json:"ca.crt"`
		SigningKey  []byte `json:"ca.key"`
		NextCert    []byte `json:"next.crt"`
		FormerCert  []byte `json:"former.crt"`
	}
}

func (e env) caSecret() caSecret {
	e.t.Helper()
	var found caSecret
	text := e.kubectl("get", "secret", "conclave-ca", "--namespace", otherNamespace, "-o", "json")
	must.Succeed(e.t, json.Unmarshal([]byte(text), &found))
	return found
}

// testRotatedCA rotates the CA as docs/operate.md describes. After each step it kills all replicas of the operator, and
// an agent, which must then connect to agents with certificates and CA bundles from before and after the step. An agent
// closes a connection when the certificate of its peer expires, so all connections are replaced several times in each
// phase of the rotation.
func testRotatedCA(e env) {
	e.kubectl("patch", "electiongroup", "ledger", "--namespace", samplesNamespace, "--type", "merge", "-p", upgradePatch)
	e.waitUntil(defaultTimeout, "all agents use the new settings", func() bool {
		g := e.group("ledger")
		return g.condition("Ready") == "True" && g.Status.ObservedGeneration == g.Generation
	})
	e.awaitAllMembers()
	before := e.awaitCoordinator(highest).Status.Term
	start := time.Now()
	e.awaitAgreement(start, highest, pods...)
	former := e.caSecret()
	for _, pod := range pods {
		must.Succeedf(e.t, e.connectAsOperator(pod, former),
			"%s refuses a certificate of the CA before its rotation", pod)
	}

	e.kubectl("annotate", "secret", "conclave-ca", "--namespace", otherNamespace, "conclave.dev/rotate-ca=now")
	var announced caSecret
	e.waitUntil(defaultTimeout, "the next CA is announced", func() bool {
		announced = e.caSecret()
		return len(announced.Data.NextCert) > 0
	})
	if !bytes.Equal(announced.Data.SigningCert, former.Data.SigningCert) || len(announced.Data.FormerCert) > 0 ||
		len(announced.Metadata.Annotations) > 0 {
		e.t.Errorf("got another signing CA, a former CA or annotations %v after the first step, want none",
			announced.Metadata.Annotations)
	}
	e.killOperatorAndAgent(pods[0])

	var promoted caSecret
	e.waitUntil(defaultTimeout, "the next CA signs", func() bool {
		promoted = e.caSecret()
		return !bytes.Equal(promoted.Data.SigningCert, former.Data.SigningCert)
	})
	if !bytes.Equal(promoted.Data.SigningCert, announced.Data.NextCert) ||
		!bytes.Equal(promoted.Data.FormerCert, former.Data.SigningCert) {
		e.t.Error("got another signing CA than the one announced, or another former CA than the one that signed")
	}
	e.killOperatorAndAgent(pods[1])

	var retired caSecret
	e.waitUntil(defaultTimeout, "the former CA is retired", func() bool {
		retired = e.caSecret()
		return len(retired.Data.FormerCert) == 0
	})
	if !bytes.Equal(retired.Data.SigningCert, promoted.Data.SigningCert) {
		e.t.Error("got another signing CA after the last step")
	}
	e.waitUntil(defaultTimeout, "all agents refuse certificates of the former CA", func() bool {
		return !slices.ContainsFunc(pods, func(pod string) bool {
			err := e.connectAsOperator(pod, former)
			return err == nil || !strings.Contains(err.Error(), "remote error: tls: ")
		})
	})
	e.waitUntil(defaultTimeout, "all agents accept certificates of the next CA", func() bool {
		return !slices.ContainsFunc(pods, func(pod string) bool { return e.connectAsOperator(pod, retired) != nil })
	})
	e.awaitAllMembers()
	e.awaitAgreement(start, highest, pods...)
	if tenures := describeTenures(e.leadingSince(start)); len(tenures) != 1 {
		e.t.Errorf("got %d tenures during the rotation, want 1:\n%s", len(tenures), strings.Join(tenures, "\n"))
	}
	expect.Equalf(e.t, e.awaitCoordinator(highest).Status.Term, before, "term after the rotation (of before)")
}

// killOperatorAndAgent kills all replicas of the operator, one after the other, and the agent of a pod, which must
// connect again. If the replicas were killed at once, certificates that are valid for seconds would expire before a
// replica renews them.
func (e env) killOperatorAndAgent(pod string) {
	e.t.Helper()
	processes := e.operatorProcesses()
	for _, replica := range e.readyReplicas() {
		pid, found := processes[replica]
		if !found { // Without a process ID, the signal would be for this test.
			e.t.Fatalf("found no process of %s, only %v", replica, processes)
		}
		must.Succeedf(e.t, syscall.Kill(pid, syscall.SIGKILL), "cannot kill %s", replica)
		// The kubelet would delay another restart of its container.
		e.kubectl("delete", "pod", replica, "--namespace", otherNamespace, "--grace-period=0", "--force", "--wait=false")
		e.waitUntil(defaultTimeout, "another pod replaces "+replica, func() bool {
			ready := e.readyReplicas()
			return len(ready) == 2 && !slices.Contains(ready, replica)
		})
	}
	before := e.agentIn(pod)
	e.killAgent(pod)
	e.waitUntil(defaultTimeout, "the agent in "+pod+" has restarted and follows "+highest, func() bool {
		r := e.latestResponses()[pod]
		return len(r) == 1 && r[0].from != before && r[0].Coordinator == highest
	})
}

// readyReplicas returns the names of the operator's pods that are ready.
func (e env) readyReplicas() []string {
	e.t.Helper()
	return strings.Fields(e.kubectl("get", "pods", "--namespace", otherNamespace, "-l",
		"app.kubernetes.io/name=conclave", "-o",
		`jsonpath={range .items[?(@.status.containerStatuses[0].ready==true)]}{.metadata.name} {end}`))
}

// operatorProcesses returns the process IDs of the operator's replicas, by pod.
func (e env) operatorProcesses() map[string]int {
	all := map[string]int{}
	folders, _ := filepath.Glob("/proc/[0-9]*") // The pattern is valid.
	for _, folder := range folders {
		name, _ := os.ReadFile(filepath.Join(folder, "comm"))
		cgroups, _ := os.ReadFile(filepath.Join(folder, "cgroup"))
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil || string(name) != "manager\n" || !bytes.Contains(cgroups, []byte("/"+e.name+"/")) {
			continue
		}
		environment, _ := os.ReadFile(filepath.Join(folder, "environ"))
		for variable := range strings.SplitSeq(string(environment), "\x00") {
			if pod, found := strings.CutPrefix(variable, "HOSTNAME="); found {
				all[pod] = pid
			}
		}
	}
	return all
}

func (e env) agentIn(pod string) process {
	e.t.Helper()
	agents := e.processes()
	at := slices.IndexFunc(agents, func(p process) bool { return p.Pod == pod })
	if at < 0 {
		e.t.Fatalf("no agent in %s", pod)
	}
	return agents[at]
}

// connectAsOperator connects to the agent in a pod by a certificate for the operator that a CA signs. It returns an
// error unless the agent accepts that.
func (e env) connectAsOperator(pod string, signer caSecret) error {
	e.t.Helper()
	ca, err := identity.ParseCA(identity.Pair{Cert: signer.Data.SigningCert, Key: signer.Data.SigningKey})
	must.Succeed(e.t, err)
	pair, err := ca.Issue(identity.Names{control.Operator}, time.Hour)
	must.Succeed(e.t, err)
	trusted := append(slices.Clone(signer.Data.SigningCert), e.caSecret().Data.SigningCert...)
	operator, err := identity.NewInMemory(pair, trusted)
	must.Succeed(e.t, err)
	inside, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", e.agentIn(pod).PID))
	if err != nil {
		return err
	}
	defer inside.Close()
	transport := &http.Transport{DialContext: dialer(inside), TLSClientConfig: operator.Client(), DisableKeepAlives: true}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	address := e.kubectl("get", "pod", pod, "--namespace", samplesNamespace, "-o", "jsonpath={.status.podIP}")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		fmt.Sprintf("https://%s:%d/", address, control.OperatorPort), http.NoBody)
	must.Succeed(e.t, err)
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	return response.Body.Close() // Any response proves that the agent accepts the certificate.
}
