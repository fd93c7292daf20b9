package main

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestMain lets the test binary run candidates.
func TestMain(m *testing.M) {
	systems = append(systems, system{name: "careless", start: startCareless, limit: time.Minute})
	if len(os.Args) > 1 && (os.Args[1] == "candidate" || os.Args[1] == "replica") {
		main()
		return
	}
	// The agent is built in the module above this one. The process that agentcluster.Main starts is there already.
	if _, err := os.Stat("compare_test.go"); err == nil {
		if err := os.Chdir("../.."); err != nil {
			panic(err)
		}
	}
	agentcluster.Main(m)
}

// start starts candidates at addresses that other processes hardly use.
func start(t *testing.T, name, agent string, counted bool) *set {
	t.Helper()
	of, err := systemNamed(name)
	must.Succeed(t, err)
	env := &environment{agent: agent, counted: counted}
	env.sets.Store(int64(os.Getpid() % 700))
	s, err := newSet(t.Context(), of, name, t.TempDir(), candidates, 1, time.Millisecond, env)
	must.Succeed(t, err)
	t.Cleanup(s.stop)
	return s
}

// The other systems need a server.
func TestEachSystemElectsAnotherLeader(t *testing.T) {
	agent := agentcluster.Binary(t)
	for _, name := range []string{"floor", "conclave-majority", "raft-tuned"} {
		t.Run(name, func(t *testing.T) {
			s := start(t, name, agent, false)
			for _, f := range faults[:2] {
				if result, err := s.round(t.Context(), f); err != nil || result.late || result.took <= 0 {
					t.Errorf("%s: got %+v and error %v, want another leader", f.name, result, err)
				}
			}
		})
	}
}

// Each system elects another leader while no packet from or to the leader arrives, and takes it in again after that.
func TestSilentLeaderIsReplaced(t *testing.T) {
	agentcluster.NeedPartitions(t)
	agent := agentcluster.Binary(t)
	for _, name := range []string{"conclave-available", "raft-tuned"} {
		t.Run(name, func(t *testing.T) {
			s := start(t, name, agent, true)
			for range 2 {
				if result, err := s.round(t.Context(), faults[3]); err != nil || result.late || result.took <= 0 {
					t.Errorf("got %+v and error %v, want another leader", result, err)
				}
			}
		})
	}
}

func TestVacantTimeIsThatWithoutAClaim(t *testing.T) {
	for name, test := range map[string]struct {
		claims []claim
		want   time.Duration
	}{
		"nobody":                  {nil, 200},
		"all the time":            {[]claim{{0, 50, 350}}, 0},
		"until it is lost":        {[]claim{{0, 50, 130}}, 170},
		"from the middle on":      {[]claim{{1, 180, 400}}, 80},
		"one after the other":     {[]claim{{1, 180, 400}, {0, 50, 130}}, 50},
		"two at once, and nobody": {[]claim{{0, 50, 150}, {1, 120, 170}, {2, 250, 260}}, 120},
	} {
		expect.Equalf(t, vacant(test.claims, 100, 300), test.want, "%s", name)
	}
}

// careless is an election like that of a Lease, with a file. A leader that has lost it goes on with its work for a
// while.
type careless struct {
	spec    *spec
	leading atomic.Bool
}

const (
	carelessLease = 500 * time.Millisecond
	carelessWork  = 200 * time.Millisecond
)

func startCareless(_ context.Context, s *spec) ([]elector, error) {
	return []elector{&careless{spec: s}}, nil
}

func (c *careless) run(ctx context.Context, to *reporter) error {
	file := filepath.Join(filepath.Dir(c.spec.Folder), "lease")
	for ctx.Err() == nil {
		holder, err := os.ReadFile(file)
		info, statErr := os.Stat(file)
		renewed := err == nil && statErr == nil && time.Since(info.ModTime()) < carelessLease*time.Duration(1+c.spec.Self)
		switch {
		case !renewed && (c.spec.Self == 0 || err == nil), string(holder) == strconv.Itoa(c.spec.Self):
			draft := filepath.Join(c.spec.Folder, "draft")
			if err := errors.Join(os.WriteFile(draft, []byte(strconv.Itoa(c.spec.Self)), 0o600),
				os.Rename(draft, file)); err != nil {
				return err
			}
			c.leading.Store(true)
			to.know(c.spec.Self)
		default:
			if c.leading.Load() {
				to.check()
				time.Sleep(carelessWork)
				c.leading.Store(false)
			}
			to.know(parseIndex(string(holder)))
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

func (c *careless) leads() bool { return c.leading.Load() }

func TestSeededDoubleLeaderIsReported(t *testing.T) {
	s := start(t, "careless", "", false)
	result, err := s.round(t.Context(), faults[2])
	must.Succeed(t, err)
	if report := newFailover(s.of, faults[2], []outcome{result}); report.Two != 1 ||
		!strings.Contains(report.String(), "two leaders in 1 of 1") {
		t.Errorf("got %s, want two leaders", report)
	}
}

func TestOverlapOmitsTheFrozenTime(t *testing.T) {
	frozen := claim{0, 100, 200}
	for name, test := range map[string]struct {
		claims []claim
		want   time.Duration
	}{
		"one after the other":                {[]claim{{0, 0, 90}, {1, 95, 300}}, 0},
		"both running":                       {[]claim{{1, 0, 90}, {2, 80, 300}}, 10},
		"the frozen one never said yes late": {[]claim{{0, 0, 99}, {1, 150, 300}}, 0},
		"the frozen one said yes afterwards": {[]claim{{0, 0, 230}, {1, 150, 300}}, 30},
		"again itself":                       {[]claim{{1, 0, 90}, {1, 80, 300}}, 0},
	} {
		expect.Equalf(t, overlap(test.claims, frozen), test.want, "%s", name)
	}
}

func TestReportHasAllResults(t *testing.T) {
	of, err := systemNamed("raft")
	must.Succeed(t, err)
	r := &Report{Failovers: []Failover{
		newFailover(of, faults[0], []outcome{{took: 1500 * time.Millisecond}, {late: true}}),
		newFailover(of, faults[2], []outcome{{late: true, two: time.Millisecond}}),
	}, Outages: []Outage{
		{System: "raft"}, {System: "lease", Vacant: 50_000, Changed: true},
	}, Idle: []Idle{{System: "floor", Resident: 20}, {System: "raft", Resident: 30.5}}}
	output := filepath.Join(t.TempDir(), "results", "compare")
	must.Succeed(t, r.write(output))
	for extension, wanted := range map[string][]string{
		".md": {
			"| hashicorp/raft | 1.5 s / 1.5 s; 1 not within 60 s | - | -; 1 not within 60 s (1: 1 ms) | - |", "| 10.5 |",
			"| hashicorp/raft | never | none | the same leader |", "| Lease, 15/10/2 s | 50 s | none | another leader |",
			"HeartbeatTimeout and ElectionTimeout 1 s",
		},
		".json": {`"Median": 1500`},
		".svg":  {"not within 60 s", ">1.5 s<"},
	} {
		text := must.ReadFile(t, output+extension)
		for _, want := range wanted {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s doesn't contain %q:\n%s", extension, want, text)
			}
		}
		for d := xml.NewDecoder(strings.NewReader(string(text))); extension == ".svg"; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("the chart isn't valid XML: %v", err)
			}
		}
	}
}

func TestUnknownSystemIsRefused(t *testing.T) {
	for want, arguments := range map[string][]string{
		`no system "zab", only floor,`:            {"--only", "zab"},
		"--only must be operators of the report,": {"--only", "keda,raft", "--report", "operators"},
	} {
		root := newRoot()
		root.SetArgs(arguments)
		root.SetErr(io.Discard)
		expect.ErrorContainsf(t, root.ExecuteContext(t.Context()), want, "%q", arguments)
	}
}
