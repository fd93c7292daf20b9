package pod

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/api"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/group"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// machine runs one agent process after the other with the same disk. It stands for agent.Agent, and checks what a
// worker lets that do.
type machine struct {
	t   *testing.T
	dir string

	store  *state.Store
	worker *groupWorker
	// running is the group that the agent takes part in, nil if there is none, and until when it was last in each UID.
	running *config.Group
	until   map[string]time.Time
	// passed is the number of points before and after each effect, and the process ends at point crash. At point fail,
	// err is returned.
	passed, crash, fail int
	err                 error
}

const reconcileLease = 500 * time.Millisecond

// probe is that of the pod. It applies to all groups.
var probe = &config.Probe{URL: "http://127.0.0.1:80"}

// start starts a process.
func (m *machine) start() {
	store, err := state.Open(m.dir)
	must.Succeed(m.t, err)
	m.store = store
	reports := newReportHub(control.Agent{}, time.Hour)
	settings := &Settings{Pod: "a", Groups: []string{"ledger"}, Probe: probe}
	manager := newGroupManager(settings, store, reports, slog.New(slog.DiscardHandler))
	m.worker, err = manager.worker("ledger")
	must.Succeed(m.t, err)
}

// end ends the process.
func (m *machine) end() {
	must.Succeed(m.t, m.store.Close())
	m.stop()
}

func (m *machine) stop() {
	if m.running != nil {
		m.until[m.running.UID], m.running = time.Now(), nil
	}
}

type crashed struct{}

func (m *machine) point() error {
	m.passed++
	if m.passed == m.crash {
		panic(crashed{})
	}
	if m.passed == m.fail {
		return m.err
	}
	return nil
}

func (m *machine) Find(string) (*group.Group, bool) { return nil, m.running != nil }

func (m *machine) StoreGroup(next config.Group, document []byte) (config.Group, error) {
	if err := m.point(); err != nil {
		return next, err
	}
	err := m.store.Save(next.Name, state.Record{
		UID: next.UID, List: &next.List, Lease: next.Safety.Lease, Document: string(document), Revision: next.Revision,
	})
	return next, errors.Join(err, m.point())
}

func (m *machine) ApplyGroup(_ context.Context, next config.Group) error {
	if err := m.point(); err != nil {
		m.stop() // The agent leaves a group that it can't apply.
		return err
	}
	stored, err := m.store.Load("ledger")
	must.Succeed(m.t, err)
	if stored.UID != next.UID || stored.Revision != next.Revision || stored.List.Version != next.List.Version {
		m.t.Errorf("point %d: revision %d is in force, but %d is stored", m.crash, next.Revision, stored.Revision)
	}
	expect.Equalf(m.t, next.Probe, probe, "probe")
	for uid, until := range m.until {
		if uid != next.UID {
			expect.AtLeastf(m.t, time.Since(until), reconcileLease*9/8, "time since the agent left %s", uid)
		}
	}
	m.running = &next
	return m.point()
}

func (m *machine) LeaveGroup(context.Context, string) error {
	err := m.point()
	m.stop()
	return errors.Join(err, m.point())
}

// request passes a request of the operator to the worker, and returns its result, and whether the process survived.
func (m *machine) request(next *target) (result error, survived bool) {
	defer func() {
		switch r := recover(); r {
		case nil:
		case crashed{}:
			result, survived = nil, false
		default:
			panic(r)
		}
	}()
	done, err := m.worker.replace(next)
	if done == nil {
		return err, true
	}
	m.worker.reconcile(m.t.Context(), m)
	return <-done, true
}

// state returns what is in force and stored.
func (m *machine) state() string {
	stored, err := m.store.Load("ledger")
	must.Succeed(m.t, err)
	inForce := "nothing"
	if m.running != nil {
		inForce = fmt.Sprintf("%s revision %d", m.running.UID, m.running.Revision)
	}
	return fmt.Sprintf("%s in force; stored: %s revision %d, document %t, list %t", inForce, stored.UID, stored.Revision,
		stored.Document != "", stored.List != nil)
}

// wanted returns a target: a document of a list with these members, or to leave without any.
func wanted(t *testing.T, uid string, revision int64, members ...string) *target {
	t.Helper()
	if members == nil {
		return &target{uid: uid, revision: revision}
	}
	d := (&cluster{}).document(revision, members...)
	d.UID, d.Group.Version = uid, uint32(revision)
	text := []byte(encode(t, d))
	g, err := (&groupManager{probe: probe}).parse("test", text)
	must.Succeed(t, err)
	return &target{source: "test", uid: uid, revision: revision, document: text, settings: g}
}

// TestReconcileSurvivesCrashes: a process that ends before or after any effect of a request leaves a disk from which
// the next one starts, and the repeated request has the same result as without a crash.
func TestReconcileSurvivesCrashes(t *testing.T) {
	t.Parallel()
	first := wanted(t, "u1", 1, "a", "b")
	const inForce, outdated = "%s in force; stored: %[1]s, document true, list true", "nothing in force; stored: %s"
	tests := map[string]struct {
		want     string
		requests []*target
	}{
		"join":   {fmt.Sprintf(inForce, "u1 revision 1"), []*target{first}},
		"change": {fmt.Sprintf(inForce, "u1 revision 2"), []*target{first, wanted(t, "u1", 2, "a", "c")}},
		"leave": {
			fmt.Sprintf(outdated, "u1 revision 1, document false, list false"),
			[]*target{first, wanted(t, "u1", 1)},
		},
		"removed": { // The operator hasn't asked it to leave yet.
			fmt.Sprintf(outdated, "u1 revision 2, document true, list true"),
			[]*target{first, wanted(t, "u1", 2, "b", "c")},
		},
		"return": {
			fmt.Sprintf(inForce, "u1 revision 3"),
			[]*target{first, wanted(t, "u1", 1), wanted(t, "u1", 3, "a", "b")},
		},
		"replace": {fmt.Sprintf(inForce, "u2 revision 2"), []*target{first, wanted(t, "u2", 2, "a", "b")}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				run := func(crash int) (*machine, bool) {
					m := &machine{t: t, dir: t.TempDir(), until: map[string]time.Time{}, crash: crash}
					m.start()
					crashed := false
					for _, r := range test.requests {
						err, survived := m.request(r)
						if !survived {
							crashed = true
							m.end()
							m.start()
							m.worker.reconcile(t.Context(), m)
							if m.running != nil {
								expect.Equalf(t, m.running.Revision, m.worker.stored.revision, "revision after a restart")
							}
							err, _ = m.request(r)
						}
						must.Succeedf(t, err, "%s: crash at point %d", name, crash)
					}
					return m, crashed
				}
				m, _ := run(0)
				points := m.passed
				expect.Equalf(t, m.state(), test.want, "without a crash")
				for range 2 { // It is idempotent.
					expect.Equalf(t, m.worker.reconcile(t.Context(), m), 0, "delay of the next reconcile")
				}
				expect.Equalf(t, m.passed, points, "effects of further reconciles")
				m.end()
				for crash := 1; crash <= points; crash++ {
					m, crashed := run(crash)
					expect.Equalf(t, crashed, true, "crash at point %d", crash)
					expect.Equalf(t, m.state(), test.want, "after a crash at point %d", crash)
					m.end()
				}
			})
		})
	}
}

// TestReconcileRetries what the disk has prevented, and refuses what can't be in force.
func TestReconcileRetries(t *testing.T) {
	t.Parallel()
	first, second := wanted(t, "u1", 1, "a", "b"), wanted(t, "u1", 2, "a", "b")
	invalid := errors.New("the list doesn't follow")
	for fail := 3; fail <= 5; fail++ { // before and after the second document is stored, and before it is applied
		for _, cause := range []error{syscall.ENOSPC, invalid} {
			synctest.Test(t, func(t *testing.T) {
				m := &machine{t: t, dir: t.TempDir(), until: map[string]time.Time{}}
				m.start()
				defer m.end()
				err, _ := m.request(first)
				must.Succeed(t, err)
				m.passed, m.fail, m.err = 2, fail, cause
				err, _ = m.request(second)
				expect.ErrorIsf(t, err, cause, "point %d", fail)
				expect.Equalf(t, errors.Is(err, api.ErrInvalidDocument), errors.Is(cause, invalid), "is the request invalid")
				_, err = m.worker.replace(wanted(t, "u1", 1, "a", "b"))
				if again := m.worker.reconcile(t.Context(), m); errors.Is(cause, invalid) {
					expect.Equalf(t, again, 0, "delay after a refused document")
				} else {
					expect.ErrorIsf(t, err, api.OutdatedError{Lowest: 2, Got: 1}, "an older document while the disk is full")
				}
				err, _ = m.request(second)
				must.Succeedf(t, err, "the same document again, after it failed at point %d", fail)
				expect.Equalf(t, m.running.Revision, 2, "revision in force")
				expect.Equalf(t, m.worker.problem, "", "problem")
			})
		}
	}
}

// TestLeaveIsRetried: after a request to leave, neither a document that couldn't be stored is applied, nor one that
// arrives late.
func TestLeaveIsRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &machine{t: t, dir: t.TempDir(), until: map[string]time.Time{}}
		m.start()
		defer m.end()
		err, _ := m.request(wanted(t, "u1", 1, "a", "b"))
		must.Succeed(t, err)
		inTheWay := filepath.Join(m.dir, "ledger.state"+state.TempSuffix, "full")
		must.Succeed(t, os.MkdirAll(inTheWay, 0o700))
		for _, r := range []*target{wanted(t, "u1", 2, "a", "b"), wanted(t, "u1", 2)} {
			err, _ = m.request(r)
			expect.ErrorContainsf(t, err, "cannot store the state of group ledger", "a full disk")
		}
		must.Succeed(t, os.RemoveAll(filepath.Dir(inTheWay)))
		expect.Equalf(t, m.worker.reconcile(t.Context(), m), 0, "delay after the disk was repaired")
		err, _ = m.request(wanted(t, "u1", 2, "a", "b"))
		expect.ErrorIsf(t, err, api.OutdatedError{Lowest: 3, Got: 2}, "a late document")
		expect.Equalf(t, m.state(), "nothing in force; stored: u1 revision 2, document false, list false", "state")
	})
}

// TestFailedGroupWasLeft: if a document can't be applied, the agent leaves the group. A group that replaces it waits
// for the grants of until then.
func TestFailedGroupWasLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &machine{t: t, dir: t.TempDir(), until: map[string]time.Time{}, fail: 7, err: errors.New("no memory")}
		m.start()
		defer m.end()
		requests := []*target{wanted(t, "u1", 1, "a", "b"), wanted(t, "u1", 2, "a", "b"), wanted(t, "u2", 3, "a", "b")}
		err, _ := m.request(requests[0])
		must.Succeed(t, err)
		time.Sleep(time.Hour)
		err, _ = m.request(requests[1])
		expect.ErrorIsf(t, err, m.err, "the second document")
		err, _ = m.request(requests[2])
		must.Succeed(t, err)
		expect.Equalf(t, m.running.UID, "u2", "group in force")
	})
}

// TestNewestRequestWins: requests that arrive while another one is being carried out have the result of the newest.
func TestNewestRequestWins(t *testing.T) {
	t.Parallel()
	m := &machine{t: t, dir: t.TempDir(), until: map[string]time.Time{}}
	m.start()
	defer m.end()
	var results []<-chan error
	for _, r := range []*target{
		wanted(t, "u1", 1, "a", "b"), wanted(t, "u2", 2, "a", "b"), wanted(t, "u2", 2), wanted(t, "u2", 4, "a", "b"),
	} {
		done, err := m.worker.replace(r)
		must.Succeed(t, err)
		results = append(results, done)
	}
	if _, err := m.worker.replace(wanted(t, "u1", 3, "a", "b")); !errors.Is(err, api.OutdatedError{Lowest: 4, Got: 3}) {
		t.Errorf("got %v for an older document", err)
	}
	m.worker.reconcile(t.Context(), m)
	for _, done := range results {
		expect.Succeed(t, <-done)
	}
	expect.Equalf(t, m.state(), "u2 revision 4 in force; stored: u2 revision 4, document true, list true", "state")
	expect.Equalf(t, slices.Contains(m.worker.groupsWithoutDocument(), "ledger"), false, "waits for the document")
}
