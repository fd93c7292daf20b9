package streams

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

const (
	// retryFirst and retryLast bound the wait before another attempt.
	retryFirst = 20 * time.Millisecond
	retryLast  = 5 * time.Second
	// silenceMax is three times what an agent lets pass between two signs of life.
	silenceMax = 15 * time.Second
	// steady is how long a stream must have lasted for the waits to begin anew.
	steady = time.Second
)

// stream is the connection with one agent, over all attempts. What is below mu
// of its Streams is guarded by that.
type stream struct {
	streams *Streams
	agent   Agent
	cancel  context.CancelFunc
	// now has an attempt be made at once.
	now chan struct{}

	// pace and bulk are the agent's over all connections: see hearing.
	pace, bulk *rate.Limiter

	life   int32
	line   Connection
	over   bool
	groups map[string]bool
	// talk runs something until the connection breaks. It is nil while there is none.
	talk    func(func(context.Context))
	errands map[string]*errand
}

func (s *stream) hurry() {
	select {
	case s.now <- struct{}{}:
	default:
	}
}

// run connects again and again.
func (s *stream) run(ctx context.Context) {
	for attempt := 0; ctx.Err() == nil; attempt++ {
		began := time.Now()
		current, err := s.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if current && time.Since(began) > steady {
			// Nobody is told yet. A process that has ended is refused at once, and then
			// it is known why, too. And where the operator's certificate has run out,
			// which all agents notice at the same moment, nothing has happened.
			s.hush()
			attempt = -1
			continue
		}
		s.broke(err)
		select {
		case <-ctx.Done():
		case <-s.now:
			attempt = -1
		case <-time.After(backoff(attempt)):
		}
	}
}

// backoff is the wait after so many attempts, of which half is by chance: else
// all streams to a node that returns would be tried at once.
func backoff(attempt int) time.Duration {
	wait := retryLast
	if attempt < 8 {
		wait = min(retryFirst<<max(attempt, 0), retryLast)
	}
	return wait/2 + rand.N(wait/2)
}

// listen connects, and hears the agent until that breaks. It reports whether all
// had been said that there was to say at first.
func (s *stream) listen(ctx context.Context) (current bool, err error) {
	c, err := s.streams.call(ctx, s.agent, request{method: http.MethodGet, path: control.ReportsPath})
	if err != nil {
		return false, err
	}
	defer c.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := s.hearing(c.groups)
	defer h.end()
	lines := bufio.NewReaderSize(c.body, lineBuffer)
	for {
		if err := c.conn.SetReadDeadline(time.Now().Add(silenceMax)); err != nil {
			return h.current, err
		}
		line, err := readLine(lines)
		if err != nil {
			return h.current, ended(err)
		}
		if err := s.bulk.WaitN(ctx, lineCost+len(line)); err != nil {
			return h.current, err
		}
		if err := h.line(ctx, line); err != nil {
			return h.current, err
		}
	}
}

const (
	// lineBuffer is small: a stream says nothing for hours. A line that is longer
	// is put together from several reads.
	lineBuffer = 512
	// lineMax is more than a report on a thousand members with the longest names.
	lineMax = 1 << 20
)

func readLine(r *bufio.Reader) ([]byte, error) {
	var long []byte
	for {
		part, err := r.ReadSlice('\n')
		switch {
		case err == nil && long == nil:
			return part[:len(part)-1], nil
		case err == nil:
			return append(long, part[:len(part)-1]...), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(long) > lineMax:
			return nil, fmt.Errorf("its report has more than %d bytes", lineMax)
		}
		long = append(long, part...)
	}
}

func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("its connection ended")
	}
	return err
}

// keep keeps a report, of an agent that is followed.
func (s *stream) keep(named string, report *control.Report) bool {
	now := time.Now()
	hub := s.streams
	group := types.NamespacedName{Namespace: s.agent.Pod.Namespace, Name: named}
	hub.mu.Lock()
	defer hub.mu.Unlock()
	if s.over {
		return false
	}
	voices := hub.voices[group]
	if voices == nil {
		voices = map[string]AgentReport{}
		hub.voices[group] = voices
	}
	if s.groups == nil {
		s.groups = map[string]bool{}
	}
	s.groups[group.Name] = true
	voices[s.agent.Pod.Name] = voices[s.agent.Pod.Name].next(s.agent.UID, report, now)
	s.forgetOrders(group.Name)
	return true
}

// forgetOrders has a group be told again whether to stand, if that is wanted: it
// may have been joined anew since, or have refused since nobody else could lead.
func (s *stream) forgetOrders(group string) {
	if e := s.errands[group+control.EligibilityPath]; e != nil {
		e.stale = true // also one under way: its answer may be older than the report
	}
}

// next is the voice with another report.
func (v AgentReport) next(uid types.UID, report *control.Report, now time.Time) AgentReport {
	before := v.Report
	v.UID, v.Report = uid, report
	if before == nil || before.UID != report.UID {
		return AgentReport{UID: uid, Report: report, Adopted: now, Named: now}
	}
	if before.Version != report.Version {
		v.Adopted = now
	}
	if before.Coordinator != report.Coordinator || before.Term != report.Term {
		v.Named = now
		if before.Coordinator != "" {
			v.Lost = now
		}
	}
	return v
}

// left forgets a group that the agent takes no part in any more.
func (s *stream) left(group string) {
	key := types.NamespacedName{Namespace: s.agent.Pod.Namespace, Name: group}
	hub := s.streams
	hub.mu.Lock()
	if !s.over {
		delete(s.groups, group)
		if voices := hub.voices[key]; voices != nil {
			hub.drop(key, voices, s.agent.Pod.Name)
		}
	}
	hub.mu.Unlock()
	hub.options.Changed(s.agent.Pod, group)
}

// current counts the agent as connected, and forgets the groups that an earlier
// connection reported and this one doesn't.
func (s *stream) current(ctx context.Context, said map[string]bool, groups []string) {
	hub := s.streams
	hub.mu.Lock()
	var gone []string
	for group := range s.groups {
		if !said[group] {
			gone = append(gone, group)
		}
	}
	if !s.over {
		s.line = Connection{UID: s.agent.UID, Connected: true, Since: time.Now(), Groups: groups}
		s.talk, s.errands = func(run func(context.Context)) { hub.work.Go(func() { run(ctx) }) }, nil
	}
	hub.mu.Unlock()
	for _, group := range gone {
		s.left(group)
	}
	hub.options.Changed(s.agent.Pod, "")
}

// hush has the agent told nothing for as long as nobody listens.
func (s *stream) hush() {
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()
	s.talk, s.errands = nil, nil
}

// broke notes that the agent isn't connected, and why.
func (s *stream) broke(err error) {
	hub := s.streams
	problem := explain(err)
	hub.mu.Lock()
	news := !s.over && (s.line.Connected || s.line.Problem != problem)
	if s.line.Connected {
		s.line.Since = time.Now()
	}
	s.line.Connected, s.line.Problem = false, problem
	s.talk, s.errands = nil, nil
	hub.mu.Unlock()
	if news {
		hub.options.Changed(s.agent.Pod, "")
	}
}
