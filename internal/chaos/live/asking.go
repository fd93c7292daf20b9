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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/command"
)

const (
	askInterval = 50 * time.Millisecond
	answerMax   = 64 << 10
)

// asking is the part that the sources have in common that ask the processes themselves: no object says who leads.
type asking struct{}

func (asking) asks() bool                         { return true }
func (asking) seesTwo() bool                      { return true }
func (asking) observe(context.Context, *Observer) {}
func (asking) vacant() string                     { return "" }
func (asking) evidence() string {
	return "Two leaders: the answers of the processes themselves prove it. What is shorter than the time between " +
		"two answers may be missed."
}

func (asking) current(context.Context, client.Client, []corev1.Pod) (*corev1.Pod, string, error) {
	return nil, "", nil
}

// httpSource asks each pod by HTTP: a status from 200 to 299 means that it leads, unless the answer names another
// candidate.
type httpSource struct {
	asking

	port    int
	path    string
	forward Forward
}

func (*httpSource) permissions(namespace string) []permission {
	return []permission{{"create", "", "pods", "portforward", namespace}}
}

func (s *httpSource) observePod(ctx context.Context, o *Observer, agent chaos.Agent) {
	for ctx.Err() == nil {
		err := o.through(ctx, s.forward, s.port, agent,
			func(ctx context.Context, url string) error { return s.ask(ctx, o, agent, url) })
		o.silent(agent, err)
		wait(ctx, forwardRetry)
	}
}

// ask asks a pod until it doesn't answer any more.
func (s *httpSource) ask(ctx context.Context, o *Observer, agent chaos.Agent, url string) error {
	transport := &http.Transport{DialContext: new(net.Dialer).DialContext} // It ignores proxies from the environment.
	defer transport.CloseIdleConnections()
	direct := &http.Client{
		Transport: transport, Timeout: queryTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
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
		s.answered(o, chaos.Claim{From: agent, Sent: sent, Received: received, Leading: status/
			100 == 2, Detail: fmt.Sprint(status, " ", http.StatusText(status))}, body)
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

// execSource runs a command in each pod: status 0 means that it leads, unless the first line of the output names
// another candidate.
type execSource struct {
	asking

	command string
	exec    Exec
	leader  *Leader
}

func (*execSource) permissions(namespace string) []permission {
	return []permission{{"create", "", "pods", "exec", namespace}}
}

// answerCommands runs a command for each line of its input, and answers with its status and the first line of its
// output. One shell for all of them is faster than one request to the API server for each.
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
		err := s.exec(ctx, types.NamespacedName{Namespace: s.leader.Namespace, Name: agent.Pod}, containerOf(
			o.pod(agent.UID)),
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
