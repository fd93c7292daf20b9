package main

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/agentcluster"
	"github.com/conclave-dev/conclave/internal/testing/golden"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/program"
)

// build returns a new folder with the tour and the agent, as make tour builds them in bin/.
func build(t *testing.T) string {
	t.Helper()
	must.Succeed(t, program.DependOnProgram(t.Context(), "../..", "./cmd/agent"))
	folder := t.TempDir()
	_, err := agentcluster.Build(t.Context(), folder, false)
	must.Succeed(t, err)
	command := exec.CommandContext(t.Context(), "go", "build", "-o", folder, ".")
	command.Stderr = os.Stderr
	must.Succeed(t, command.Run())
	return folder
}

// newTour returns the command of a tour whose temporary files are in a folder of its own.
func newTour(t *testing.T, programs string) (tour *exec.Cmd, temporary string) {
	t.Helper()
	temporary = t.TempDir()
	tour = exec.CommandContext(t.Context(), filepath.Join(programs, "tour"))
	tour.Env = append(os.Environ(), "TMPDIR="+temporary)
	tour.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return tour, temporary
}

// checkNothingRemains checks that a tour that has ended left no file, and no agent with a file there.
func checkNothingRemains(t *testing.T, temporary string) {
	t.Helper()
	files, err := os.ReadDir(temporary)
	must.Succeed(t, err)
	if len(files) > 0 {
		t.Errorf("these files remain: %v", files)
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must.Succeed(t, err)
	for _, path := range lines {
		if line, _ := os.ReadFile(path); strings.Contains(string(line), temporary) { // A process may end meanwhile.
			t.Errorf("this process remains: %s: %q", path, line)
		}
	}
}

// Two tours at once, on a machine that uses the ports of the first choice, show the same.
func TestTourShowsFailovers(t *testing.T) {
	for _, taken := range []string{":7401", ":7501"} {
		if listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", taken); err == nil {
			t.Cleanup(func() { listener.Close() })
		}
	}
	programs := build(t)
	t.Run("two", func(t *testing.T) {
		for _, name := range []string{"one", "another"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				tour, temporary := newTour(t, programs)
				out, err := tour.CombinedOutput()
				if err != nil {
					t.Errorf("%v\n%s", err, out)
				}
				golden.Compare(t, "testdata/tour.txt", withoutMeasurements(string(out)))
				checkNothingRemains(t, temporary)
			})
		}
	})
}

func withoutMeasurements(out string) string {
	for _, replace := range [][2]string{
		{`after \d+\.\d (m?s)`, "after N $1"},
		{`term \d{5,}`, "term T"},
		{`127\.\d+\.\d+\.(\d):74\d\d`, "127.x.y.$1:PORT"},
		{` +`, " "},
	} {
		out = regexp.MustCompile(replace[0]).ReplaceAllString(out, replace[1])
	}
	return out
}

func TestInterruptedTourLeavesNothing(t *testing.T) {
	programs := build(t)
	for name, interrupt := range map[string]func(tour *os.Process, output io.Closer) error{
		"Ctrl-C":  func(tour *os.Process, _ io.Closer) error { return syscall.Kill(-tour.Pid, syscall.SIGINT) },
		"SIGTERM": func(tour *os.Process, _ io.Closer) error { return tour.Signal(syscall.SIGTERM) },
		"head":    func(_ *os.Process, output io.Closer) error { return output.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tour, temporary := newTour(t, programs)
			output, err := tour.StdoutPipe()
			must.Succeed(t, err)
			runAndFail(t, tour, "error: interrupted: the agents have ended\n", func() {
				for lines := bufio.NewScanner(output); lines.Scan(); {
					if strings.HasPrefix(lines.Text(), "# kill -STOP") {
						break
					}
				}
				must.Succeed(t, interrupt(tour.Process, output))
			})
			checkNothingRemains(t, temporary)
		})
	}
	t.Run("failure", func(t *testing.T) {
		other := filepath.Join(t.TempDir(), "tour") // with no agent beside it
		must.Succeed(t, os.Link(filepath.Join(programs, "tour"), other))
		tour, temporary := newTour(t, filepath.Dir(other))
		runAndFail(t, tour, "error: cannot start agent e: ", func() {})
		checkNothingRemains(t, temporary)
	})
}

// runAndFail starts a tour, calls disturb, and checks how it fails.
func runAndFail(t *testing.T, tour *exec.Cmd, want string, disturb func()) {
	t.Helper()
	var stderr strings.Builder
	tour.Stderr = &stderr
	must.Succeed(t, tour.Start())
	disturb()
	err := tour.Wait()
	if tour.ProcessState.ExitCode() != 1 || !strings.HasPrefix(stderr.String(), want) {
		t.Errorf("got %v and %s, want status 1 and %s", err, stderr.String(), want)
	}
}
