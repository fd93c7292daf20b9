package asynclog_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/asynclog"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// TestFullPipeDropsLinesAndKeepsOrder: the lines that arrive are the first ones, one that
// says how many are missing, and the next one.
func TestFullPipeDropsLinesAndKeepsOrder(t *testing.T) {
	from, to, err := os.Pipe()
	must.Succeed(t, err)
	defer to.Close()
	w := asynclog.New(to)
	log := slog.New(slog.NewTextHandler(w, nil))
	written := 0
	for ; w.Dropped() < 10; written++ { // It would block here permanently if Write waited.
		log.Info("line", "n", written, "padding", strings.Repeat("x", 1000))
	}
	lines := bufio.NewScanner(from)
	kept := 0
	for lines.Scan() && !strings.Contains(lines.Text(), "dropped log lines") {
		if want := fmt.Sprintf(" n=%d ", kept); !strings.Contains(lines.Text(), want) {
			t.Fatalf("got line %.80q, want%s", lines.Text(), want)
		}
		kept++
	}
	if want := fmt.Sprintf("lines=%d", written-kept); !strings.HasSuffix(lines.Text(), want) {
		t.Errorf("got %q, want %s", lines.Text(), want)
	}
	log.Info("after that")
	if !lines.Scan() || !strings.Contains(lines.Text(), "after that") {
		t.Errorf("got %q, want the line after the dropped ones", lines.Text())
	}
	expect.Equalf(t, w.Dropped(), uint64(written-kept), "dropped lines")
}

func TestCloseWritesQueue(t *testing.T) {
	var log testwait.Log
	w := asynclog.New(&log)
	for range 100 {
		fmt.Fprintln(w, "line")
	}
	w.Close(time.Minute)
	expect.Equalf(t, log.Count("line"), 100, "lines")
	fmt.Fprintln(w, "too late")
	w.Close(time.Minute)
	expect.Equalf(t, w.Dropped(), 1, "dropped lines")
}

func TestCloseDoesNotWaitForStalledReader(t *testing.T) {
	from, to := io.Pipe() // A write to it blocks until it is read.
	defer from.Close()
	w := asynclog.New(to)
	fmt.Fprintln(w, "line")
	closed := make(chan struct{})
	go func() {
		w.Close(time.Millisecond)
		close(closed)
	}()
	testwait.Receive(t, "the end of Close", closed)
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestFailedWritesAreCounted(t *testing.T) {
	w := asynclog.New(failingWriter{})
	fmt.Fprint(w, "one\ntwo\n")
	w.Close(time.Minute)
	expect.Equalf(t, w.Dropped(), 2, "dropped lines")
}
