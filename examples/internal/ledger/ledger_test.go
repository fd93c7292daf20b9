package ledger

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// open starts a server with the ledger in a file.
func open(t *testing.T, path string) (*Server, *Client) {
	t.Helper()
	s, err := Open(path)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = s.Close() }) // Some tests close it before.
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, &Client{URL: server.URL}
}

func TestOutdatedRightsAreRejected(t *testing.T) {
	_, client := open(t, filepath.Join(t.TempDir(), "ledger"))
	for _, step := range []struct {
		entry Entry
		want  error
	}{
		{Entry{Token: 7, By: "a", Claim: true}, nil},
		{Entry{Token: 7, By: "a", Seq: 1}, nil},
		{Entry{Token: 7, By: "a", Seq: 1}, nil}, // A repetition.
		{Entry{Token: 7, By: "b", Seq: 2}, ErrFenced},
		{Entry{Token: 7, Grant: 1, By: "b", Seq: 2}, nil},
		{Entry{Token: 7, By: "a", Seq: 3}, ErrFenced},
		{Entry{Token: 6, Grant: 9, By: "a", Seq: 3}, ErrFenced},
		{Entry{Token: 8, By: "a", Claim: true}, nil},
		{Entry{Token: 7, Grant: 1, By: "b", Seq: 3}, ErrFenced},
		{Entry{Token: 8, By: "a", Seq: 3}, nil},
	} {
		step.entry.Resource = "device"
		if _, err := client.append(t.Context(), &step.entry); !errors.Is(err, step.want) {
			t.Errorf("%+v: got error %v, want %v", step.entry, err, step.want)
		}
	}
}

// A process may claim a resource again with the same right, for example after a restart.
// What it began before must not write any more.
func TestEarlierClaimsAreRejected(t *testing.T) {
	for _, unfenced := range []bool{false, true} {
		s, client := open(t, filepath.Join(t.TempDir(), "ledger"))
		s.Unfenced = unfenced
		claim := func() Entry {
			right := Entry{Resource: "device", Token: 7, By: "a"}
			must.Succeed(t, client.Claim(t.Context(), &right))
			return right
		}
		write := func(right *Entry) error {
			right.Seq++
			return client.Write(t.Context(), *right)
		}
		before := claim()
		must.Succeed(t, write(&before))
		after := claim()
		expect.Equalf(t, after.Seq, 1, "last write")
		if err := write(&before); errors.Is(err, ErrFenced) == unfenced {
			t.Errorf("unfenced %v: got error %v for a write of the earlier claim", unfenced, err)
		}
		late := before
		late.Claim, late.Seq = true, 0
		if _, err := client.append(t.Context(), &late); errors.Is(err, ErrFenced) == unfenced {
			t.Errorf("unfenced %v: got error %v for a repetition of the earlier claim", unfenced, err)
		}
		expect.Succeedf(t, write(&after), "write of the later claim")
		if v, err := s.Check(); err != nil || v.OK == unfenced {
			t.Errorf("unfenced %v: got %v, %v", unfenced, v.String(), err)
		}
	}
}

func TestInvalidEntriesAreRejected(t *testing.T) {
	_, client := open(t, filepath.Join(t.TempDir(), "ledger"))
	for _, e := range []Entry{
		{Token: 7, By: "a", Seq: 1},
		{Resource: "device", By: "a", Seq: 1},
		{Resource: "device", Token: 7, Seq: 1},
		{Resource: "device", Token: 7, By: "a"},
	} {
		if err := client.Write(t.Context(), e); err == nil || !strings.Contains(err.Error(), "needs resource, by, token") {
			t.Errorf("%+v: got error %v", e, err)
		}
	}
}

func TestLedgerContinuesAfterCrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	s, client := open(t, path)
	right := Entry{Resource: "device", Token: 7, By: "a"}
	write := func(client *Client, seq uint64) error {
		right.Seq = seq
		return client.Write(t.Context(), right)
	}
	must.Succeed(t, errors.Join(write(client, 1), write(client, 2), s.Close()))
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteString(`{"resource":"device","tok`) // The crash of a machine can leave half a line.
		err = errors.Join(err, file.Close())
	}
	must.Succeed(t, err)
	s, client = open(t, path)
	next := Entry{Resource: "device", Token: 8, By: "b"}
	if err := client.Claim(t.Context(), &next); next.Seq != 2 || err != nil {
		t.Errorf("got %d, %v, want write 2", next.Seq, err)
	}
	expect.ErrorIsf(t, write(client, 3), ErrFenced, "write of an earlier claim")
	if v, err := s.Check(); err != nil || !v.OK || v.Lines != 3 {
		t.Errorf("got %+v, %v, want three lines without violation", v, err)
	}
}

// A reader can see the begin of a line that is being written, for example at the end of a page of the file.
func TestReadersGetCompleteLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	s, client := open(t, path)
	claim := Entry{Resource: "device", Token: 7, By: "a", Claim: true}
	if _, err := client.append(t.Context(), &claim); err != nil {
		t.Fatal(err)
	}
	complete := must.ReadFile(t, path)
	must.Succeed(t, os.WriteFile(path, append(complete, `{"resource":`...), 0o600))
	response := httptest.NewRecorder()
	s.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ledger", nil))
	if got := response.Body.String(); got != string(complete) || got == "" {
		t.Errorf("got %q, want only the complete line %q", got, complete)
	}
	if verdict, err := s.Check(); err != nil || !verdict.OK {
		t.Errorf("got verdict %v and error %v, want no violation", verdict, err)
	}
}

func TestClientRepeatsUntilLedgerResponds(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "ledger"))
	must.Succeed(t, err)
	t.Cleanup(func() { _ = s.Close() })
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests++; requests%2 == 1 {
			s.ServeHTTP(httptest.NewRecorder(), r) // The response is lost.
			http.Error(w, "lost", http.StatusBadGateway)
			return
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	client := Client{URL: server.URL}
	for seq := range uint64(3) {
		must.Succeed(t, client.Write(t.Context(), Entry{Resource: "device", Token: 7, By: "a", Seq: seq + 1}))
	}
	if v, err := s.Check(); err != nil || !v.OK || v.Writes["device"] != 3 || requests != 6 {
		t.Errorf("got %+v, %v after %d requests, want three writes after six requests", v, err, requests)
	}
	server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := client.Write(ctx, Entry{Resource: "device", Token: 7, By: "a", Seq: 4}); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Errorf("got error %v, want that of the context", err)
	}
}

func TestCheckerFindsViolations(t *testing.T) {
	const begin = `{"resource":"r","token":7,"seq":0,"by":"a","claim":true}
{"resource":"r","token":7,"seq":1,"by":"a"}
{"resource":"s","token":1,"seq":1,"by":"b"}
`
	for line, want := range map[string]string{
		`{"resource":"r","token":7,"seq":2,"by":"a"}`: "holds: no gap, no duplicate and no stale write in 3 " +
			"writes to 2 resources, by 2 processes with 2 tokens",
		`{"resource":"r","token":6,"grant":5,"seq":2,"by":"b"}`: "violated: line 4: stale write: b wrote r 2 with " +
			"right 6.5 after 7.0 of a",
		`{"resource":"r","token":7,"seq":2,"by":"b"}`: "violated: line 4: two processes with the same right: b " +
			"wrote r 2 with right 7.0, and so did a",
		`{"resource":"r","token":7,"seq":2,"by":"a","run":"2"}`: "violated: line 4: two runs of one process with the " +
			"same right: a wrote r 2 with right 7.0, which has claimed it again",
		`{"resource":"r","token":8,"seq":1,"by":"b"}`: "violated: line 4: duplicate: b wrote r 1 with right 8.0 after 1",
		`{"resource":"r","token":8,"seq":3,"by":"b"}`: "violated: line 4: gap: b wrote r 3 with right 8.0 after 1",
		`{"resource":"r","token":8,"seq":0,"by":"b","claim":true}`: "violated: line 4: wrong claim: b wrote r " +
			"0 with right 8.0 after 1",
		`{"resource":"r","by":"b","violation":"two holders"}`: "violated: line 4: b reports: two holders",
	} {
		c := NewChecker()
		must.Succeed(t, errors.Join(c.Read(strings.NewReader(begin)), c.Read(strings.NewReader(line+"\n"))))
		if v := c.Verdict(); v.String() != want {
			t.Errorf("got  %s\nwant %s", v.String(), want)
		}
	}
	for _, line := range []string{"not JSON\n", `{"resource":"r"`} {
		if err := NewChecker().Read(strings.NewReader(line)); err == nil {
			t.Errorf("line %q was accepted", line)
		}
	}
}

// The server encodes a verdict while further lines are read.
func TestVerdictDoesNotChange(t *testing.T) {
	c := NewChecker()
	read := func(line string) {
		must.Succeed(t, c.Read(strings.NewReader(line+"\n")))
	}
	read(`{"resource":"device","token":7,"by":"a","seq":1}`)
	before := c.Verdict()
	read(`{"resource":"device","token":7,"by":"a","seq":2}`)
	expect.Equalf(t, before.Total(), 1, "writes in the earlier verdict")
}
