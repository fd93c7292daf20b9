package live

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/command"
)

// The intervals at which processes are asked, and at which labels are listed if nothing changes.
const (
	askInterval  = 50 * time.Millisecond
	listInterval = 200 * time.Millisecond
	answerMax    = 64 << 10
)

const byProcesses = "Two leaders: the answers of the processes themselves prove it. What is shorter than the time between two answers may be missed."

// leaseSource is a Lease: its holder leads. The first version isn't a claim, because its holder may be gone.
type leaseSource struct {
	name types.NamespacedName

	seen           bool
	holder, tenure string
	agent          chaos.Agent
}

func (*leaseSource) asks() bool                                         { return false }
func (*leaseSource) seesTwo() bool                                      { return false }
func (*leaseSource) observePod(context.Context, *Observer, chaos.Agent) {}
func (*leaseSource) evidence() string {
	return "Two leaders: a Lease names one holder and can't show two. Ask the processes, by http or exec."
}

func (s *leaseSource) permissions(string) []permission {
	return []permission{{"list", "coordination.k8s.io", "leases", "", s.name.Namespace}, {"watch", "coordination.k8s.io", "leases", "", s.name.Namespace}}
}

func (s *leaseSource) current(ctx context.Context, c client.Client, pods []corev1.Pod) (*corev1.Pod, string, error) {
	var lease coordinationv1.Lease
	err := c.Get(ctx, s.name, &lease)
	if apierrors.IsNotFound(err) {
		return nil, "", fmt.Errorf("lease %s not found in namespace %s; to list all, run: kubectl get leases -A", s.name.Name, s.name.Namespace)
	}
	if err != nil {
		return nil, "", err
	}
	s.holder = holderOf(&lease)
	var all []*corev1.Pod
	for i := range pods {
		all = append(all, &pods[i])
	}
	return holderPod(s.holder, all), "", nil
}

func holderOf(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// holderPod returns the pod to which the identity of a holder belongs: it begins with the pod's name, or with that of the node if the pod uses
// the network of that. It returns nil if there is none, or more than one.
func holderPod(holder string, pods []*corev1.Pod) (found *corev1.Pod) {
	longest, count := 0, 0
	for _, pod := range pods {
		host := pod.Name
		if pod.Spec.HostNetwork && !beginsWith(holder, host) {
			host = pod.Spec.NodeName
		}
		switch {
		case host == "" || !beginsWith(holder, host) || len(host) < longest:
		case len(host) > longest:
			longest, count, found = len(host), 1, pod
		default:
			count++
		}
	}
	if count > 1 {
		return nil
	}
	return found
}

// beginsWith reports whether an identity is a name, or begins with it and a character that separates it from the rest.
func beginsWith(identity, name string) bool {
	rest, ok := strings.CutPrefix(identity, name)
	return ok && (rest == "" || strings.ContainsAny(rest[:1], "_-./: "))
}

func (s *leaseSource) vacant() string {
	if s.holder == "" {
		return ": Lease " + s.name.Name + " has no holder"
	}
	return fmt.Sprintf(": the holder of Lease %s, %s, is no candidate, or doesn't renew it", s.name.Name, s.holder)
}

func (s *leaseSource) observe(ctx context.Context, o *Observer) {
	o.watches.Go(func() {
		watchObjects(ctx, o.client, &coordinationv1.LeaseList{}, &coordinationv1.Lease{}, func(lease *coordinationv1.Lease, deleted bool) { s.changed(o, lease, deleted) },
			client.InNamespace(s.name.Namespace), client.MatchingFields{"metadata.name": s.name.Name})
	})
}

func (s *leaseSource) changed(o *Observer, lease *coordinationv1.Lease, deleted bool) {
	now := time.Now()
	o.mu.Lock()
	defer o.unlock()
	if s.holder = holderOf(lease); deleted {
		s.holder = ""
	}
	if !s.seen {
		s.seen = true
		return
	}
	tenure := s.holder
	if t := lease.Spec.LeaseTransitions; t != nil {
		tenure += fmt.Sprint(" ", *t)
	}
	var pods []*corev1.Pod
	for _, p := range o.pods {
		pods = append(pods, p.Pod)
	}
	var agent chaos.Agent
	if pod := holderPod(s.holder, pods); pod != nil {
		agent = chaos.Agent{Pod: pod.Name, UID: string(pod.UID)}
	}
	if s.agent != (chaos.Agent{}) && (agent != s.agent || tenure != s.tenure) {
		o.claim(chaos.Claim{From: s.agent, Sent: now, Received: now})
	}
	if s.agent, s.tenure = agent, tenure; agent != (chaos.Agent{}) {
		o.claim(chaos.Claim{From: agent, Sent: now, Received: now, Leading: true})
	}
}

// labelSource is a label: the pods that have it lead. A list of the pods shows all labels at one instant, as a watch after an interruption
// doesn't.
type labelSource struct {
	key, value string
	leader     *Leader
	changed    chan struct{}
}

func (*labelSource) asks() bool                                         { return false }
func (*labelSource) seesTwo() bool                                      { return true }
func (*labelSource) observePod(context.Context, *Observer, chaos.Agent) {}
func (s *labelSource) vacant() string {
	return fmt.Sprintf(": none has the label %s=%s", s.key, s.value)
}
func (*labelSource) permissions(string) []permission { return nil }
func (*labelSource) evidence() string {
	return "Two leaders: two pods had the label at the same time. That doesn't prove that both processes led."
}

func (s *labelSource) leads(pod *corev1.Pod) bool {
	value, ok := pod.Labels[s.key]
	return ok && value == s.value && pod.DeletionTimestamp == nil
}

func (s *labelSource) current(_ context.Context, _ client.Client, pods []corev1.Pod) (*corev1.Pod, string, error) {
	for i := range pods {
		if s.leads(&pods[i]) {
			return &pods[i], s.key, nil
		}
	}
	return nil, "", nil
}

func (s *labelSource) observe(ctx context.Context, o *Observer) {
	o.watches.Go(func() {
		watchObjects(ctx, o.client, &corev1.PodList{}, &corev1.Pod{}, func(*corev1.Pod, bool) {
			select {
			case s.changed <- struct{}{}:
			default:
			}
		}, append(s.leader.selected(), client.InNamespace(s.leader.Namespace))...)
	})
	o.watches.Go(func() {
		for instant := 1; ctx.Err() == nil; instant++ {
			var list corev1.PodList
			sent := time.Now()
			if err := o.client.List(ctx, &list, append(s.leader.selected(), client.InNamespace(s.leader.Namespace))...); err == nil {
				s.listed(o, &list, sent, instant)
			}
			select {
			case <-s.changed:
			case <-time.After(listInterval):
			case <-ctx.Done():
			}
		}
	})
}

func (s *labelSource) listed(o *Observer, list *corev1.PodList, sent time.Time, instant int) {
	now := time.Now()
	o.mu.Lock()
	defer o.unlock()
	for i := range list.Items {
		pod := &list.Items[i]
		o.claim(chaos.Claim{
			From: chaos.Agent{Pod: pod.Name, UID: string(pod.UID)}, Sent: sent, Received: now, Leading: s.leads(pod), Instant: instant,
		})
	}
}

// httpSource asks each pod by HTTP: a status from 200 to 299 means that it leads, unless the answer names another candidate.
type httpSource struct {
	port    int
	path    string
	forward Forward
	leader  *Leader
}

func (*httpSource) asks() bool                         { return true }
func (*httpSource) seesTwo() bool                      { return true }
func (*httpSource) evidence() string                   { return byProcesses }
func (*httpSource) observe(context.Context, *Observer) {}
func (*httpSource) vacant() string                     { return "" }
func (*httpSource) permissions(namespace string) []permission {
	return []permission{{"create", "", "pods", "portforward", namespace}}
}

func (*httpSource) current(context.Context, client.Client, []corev1.Pod) (*corev1.Pod, string, error) {
	return nil, "", nil
}

func (s *httpSource) observePod(ctx context.Context, o *Observer, agent chaos.Agent) {
	for ctx.Err() == nil {
		err := o.through(ctx, s.forward, s.port, agent, func(ctx context.Context, url string) error { return s.ask(ctx, o, agent, url) })
		o.silent(agent, err)
		wait(ctx, forwardRetry)
	}
}

// ask asks a pod until it doesn't answer any more.
func (s *httpSource) ask(ctx context.Context, o *Observer, agent chaos.Agent, url string) error {
	transport := &http.Transport{DialContext: new(net.Dialer).DialContext} // It ignores proxies from the environment.
	defer transport.CloseIdleConnections()
	direct := &http.Client{Transport: transport, Timeout: queryTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for timeouts := 0; ctx.Err() == nil; wait(ctx, askInterval) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+s.path, http.NoBody)
		if err != nil {
			return err
		}
		sent := time.Now()
		status, body, err := get(direct, request)
		received := time.Now()
		if err != nil {
			o.silent(agent, err)
			if timeouts++; timeouts >= maxTimeouts {
				return err
			}
			continue
		}
		timeouts = 0
		s.answered(o, chaos.Claim{From: agent, Sent: sent, Received: received, Leading: status/100 == 2, Detail: fmt.Sprint(status, " ", http.StatusText(status))}, body)
	}
	return nil
}

func get(c *http.Client, request *http.Request) (status int, body string, err error) {
	response, err := c.Do(request)
	if err != nil {
		return 0, "", errors.Unwrap(err) // without the URL
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, answerMax))
	return response.StatusCode, string(text), err
}

// answered records an answer. It may name the leader, as text or as {"name": POD}.
func (*httpSource) answered(o *Observer, c chaos.Claim, body string) {
	var object struct{ Name string }
	if json.Unmarshal([]byte(body), &object) == nil && object.Name != "" {
		body = object.Name
	}
	o.mu.Lock()
	defer o.unlock()
	if named, own := o.names(body, c.From.Pod); named {
		c.Leading = c.Leading && own
	}
	o.claim(c)
}

// Exec runs a command in a container until its input or ctx ends.
type Exec func(ctx context.Context, pod types.NamespacedName, container string, command []string, in io.Reader, out io.Writer) error

// execSource runs a command in each pod: status 0 means that it leads, unless the first line of the output names another candidate.
type execSource struct {
	command string
	exec    Exec
	leader  *Leader
}

func (*execSource) asks() bool                         { return true }
func (*execSource) seesTwo() bool                      { return true }
func (*execSource) evidence() string                   { return byProcesses }
func (*execSource) observe(context.Context, *Observer) {}
func (*execSource) vacant() string                     { return "" }
func (*execSource) permissions(namespace string) []permission {
	return []permission{{"create", "", "pods", "exec", namespace}}
}

func (*execSource) current(context.Context, client.Client, []corev1.Pod) (*corev1.Pod, string, error) {
	return nil, "", nil
}

// answerCommands runs a command for each line of its input, and answers with its status and the first line of its output. One shell for all of
// them is faster than one request to the API server for each.
const answerCommands = `newline='
'
while read -r line; do
	output=$(eval "$1" 2>&1 </dev/null); status=$?
	printf '%s %s\n' "$status" "${output%%"$newline"*}"
done`

const (
	commandTimeout = 10 * time.Second
	// A shell has these exit statuses if a command can't be executed, or doesn't exist.
	notExecutable, notFound = 126, 127
)

func (s *execSource) observePod(ctx context.Context, o *Observer, agent chaos.Agent) {
	for ctx.Err() == nil {
		if err := s.ask(ctx, o, agent); err != nil {
			o.silent(agent, command.SingleLine(err))
		}
		wait(ctx, forwardRetry)
	}
}

func (s *execSource) ask(ctx context.Context, o *Observer, agent chaos.Agent) error {
	ctx, cancel := context.WithCancel(ctx)
	in, questions := io.Pipe()
	answers, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := s.exec(ctx, types.NamespacedName{Namespace: s.leader.Namespace, Name: agent.Pod}, containerOf(o.pod(agent.UID)),
			[]string{"sh", "-c", answerCommands, "sh", s.command}, in, out)
		_, _ = in.Close(), out.Close() // The Close of a pipe never fails.
		ended <- err
	}()
	lines := make(chan string)
	go func() {
		for scanner := bufio.NewScanner(answers); scanner.Scan(); {
			select {
			case lines <- scanner.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() { cancel(); _, _ = questions.Close(), answers.Close() }()
	for first := true; ctx.Err() == nil; wait(ctx, askInterval) {
		sent := time.Now()
		if _, err := questions.Write([]byte("\n")); err != nil {
			return ends(<-ended)
		}
		select {
		case line := <-lines:
			if first && !o.exists(ctx, agent) {
				return errReplaced
			}
			first = false
			if err := s.answered(o, chaos.Claim{From: agent, Sent: sent, Received: time.Now()}, line); err != nil {
				return err
			}
		case err := <-ended:
			return ends(err)
		case <-time.After(commandTimeout):
			return fmt.Errorf("the command took longer than %s", commandTimeout)
		case <-ctx.Done():
		}
	}
	return nil
}

// ends describes why a shell has ended.
func ends(err error) error {
	if err == nil {
		return errors.New("the connection has ended")
	}
	if strings.Contains(err.Error(), "executable file not found") {
		return errors.New("its container has no sh: use http")
	}
	return err
}

func (*execSource) answered(o *Observer, c chaos.Claim, line string) error {
	code, output, _ := strings.Cut(line, " ")
	status, err := strconv.Atoi(code)
	switch {
	case err != nil:
		return fmt.Errorf("not an answer: %q", line)
	case status == notFound, status == notExecutable:
		return fmt.Errorf("the command failed: %s", output)
	}
	c.Leading, c.Detail = status == 0, strings.TrimSpace(fmt.Sprintf("exit status %d %s", status, output))
	o.mu.Lock()
	defer o.unlock()
	if named, own := o.names(output, c.From.Pod); named {
		c.Leading = c.Leading && own
	}
	o.claim(c)
	return nil
}

// containerOf returns the container that kubectl exec chooses.
func containerOf(pod *corev1.Pod) string {
	switch {
	case pod == nil:
		return ""
	case pod.Annotations["kubectl.kubernetes.io/default-container"] != "":
		return pod.Annotations["kubectl.kubernetes.io/default-container"]
	}
	return pod.Spec.Containers[0].Name
}
