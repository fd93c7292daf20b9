package ledger

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// Server is a ledger in a file.
//
//	POST /ledger     appends an entry, and returns it as it is stored; 409 if its right is outdated
//	GET  /ledger     returns all lines
//	GET  /invariant  returns a Verdict: 200 if the invariant holds, 500 if it is violated
type Server struct {
	// Unfenced: outdated rights are accepted, as most devices do. Then faults violate the invariant sooner or later.
	Unfenced bool
	// Delay is how long a request takes until it is stored, as in a slow device.
	Delay time.Duration

	mu   sync.Mutex
	path string
	file *os.File
	// size is that of the complete lines. Another one may be being written.
	size int64
	last map[string]Entry
	// ended are the runs by resource that a later claim with the same right has ended. A request of such a run may arrive
	// late.
	ended map[string]map[string]bool

	checkMu sync.Mutex
	// checked is the file again, read as far as the checker has checked it.
	checked *os.File
	checker *Checker
}

// maxEntry limits the size of a request.
const maxEntry = 4 << 10

// Open opens the ledger in a file, and creates the file if it doesn't exist.
func Open(path string) (*Server, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	checked, err := os.Open(path)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	s := &Server{
		path: path, file: file, checked: checked, last: map[string]Entry{},
		ended: map[string]map[string]bool{}, checker: NewChecker(),
	}
	if err := s.restore(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot restore the ledger %s: %w", path, err), s.Close())
	}
	return s, nil
}

// restore reads the last entry of each resource. It removes an incomplete last line, which
// a crash has left: nobody was told that this line is stored.
func (s *Server) restore() error {
	content, err := os.Open(s.path)
	if err != nil {
		return err
	}
	defer content.Close()
	for lines := bufio.NewReader(content); ; { // A ledger may be larger than the memory.
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return s.file.Truncate(s.size)
		}
		if err != nil {
			return err
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		s.remember(&e)
		s.size += int64(len(line))
	}
}

// Close closes the files.
func (s *Server) Close() error { return errors.Join(s.file.Close(), s.checked.Close()) }

// append appends an entry, unless its right is outdated.
func (s *Server) append(e Entry) (Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.last[e.Resource]
	order := compareRights(&e, &last)
	switch {
	case e.Violation != "": // Anybody may report one.
	case !s.Unfenced && (order < 0 || order == 0 && e.By != last.By):
		return Entry{}, fmt.Errorf("%w: %s is at %d.%d of %s, got %d.%d of %s",
			ErrFenced, e.Resource, last.Token, last.Grant, last.By, e.Token, e.Grant, e.By)
	case !s.Unfenced && order == 0 && e.Run != last.Run && (!e.Claim || s.ended[e.Resource][e.Run]):
		return Entry{}, fmt.Errorf("%w: %s has claimed %s again", ErrFenced, e.By, e.Resource)
	case sameRun(&e, &last) && (e.Claim || e.Seq <= last.Seq):
		return last, nil // The client has repeated a request of which it got no response.
	case e.Claim:
		e.Seq = last.Seq
	}
	line, err := json.Marshal(e)
	if err != nil {
		return Entry{}, err
	}
	written, err := s.file.Write(append(line, '\n'))
	if err != nil {
		return Entry{}, errors.Join(err, s.file.Truncate(s.size))
	}
	s.size += int64(written)
	s.remember(&e)
	return e, nil
}

// remember makes an entry the last one of its resource.
func (s *Server) remember(e *Entry) {
	if e.Violation != "" {
		return
	}
	last := s.last[e.Resource]
	switch {
	case compareRights(e, &last) != 0:
		delete(s.ended, e.Resource)
	case e.Run != last.Run && s.ended[e.Resource] == nil:
		s.ended[e.Resource] = map[string]bool{last.Run: true}
	case e.Run != last.Run:
		s.ended[e.Resource][last.Run] = true
	}
	s.last[e.Resource] = *e
}

// complete returns the size of the complete lines.
func (s *Server) complete() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// Check checks the file.
func (s *Server) Check() (Verdict, error) {
	s.checkMu.Lock()
	defer s.checkMu.Unlock()
	end := s.complete()
	at, err := s.checked.Seek(0, io.SeekCurrent)
	if err != nil {
		return Verdict{}, err
	}
	err = s.checker.Read(io.LimitReader(s.checked, end-at))
	return s.checker.Verdict(), err
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "POST /ledger":
		s.serveAppend(w, r)
	case "GET /ledger":
		http.ServeContent(w, r, "ledger.txt", time.Time{}, io.NewSectionReader(s.checked, 0, s.complete()))
	case "GET /invariant":
		verdict, err := s.Check()
		if err != nil {
			verdict.OK, verdict.Violation = false, err.Error()
		}
		status := http.StatusOK
		if !verdict.OK {
			status = http.StatusInternalServerError
		}
		respond(w, status, verdict)
	default:
		http.Error(w, "the requests are POST /ledger, GET /ledger and GET /invariant", http.StatusNotFound)
	}
}

func (s *Server) serveAppend(w http.ResponseWriter, r *http.Request) {
	var e Entry
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxEntry)).Decode(&e); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if e.Violation == "" && (e.Resource == "" || e.By == "" || e.Token == 0 || e.Claim == (e.Seq > 0)) {
		http.Error(w, "an entry needs resource, by, token, and either claim or seq", http.StatusBadRequest)
		return
	}
	time.Sleep(s.Delay) // Even if the client gives up: a write that is on its way can't be called back.
	stored, err := s.append(e)
	switch {
	case errors.Is(err, ErrFenced):
		http.Error(w, err.Error(), http.StatusConflict)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		respond(w, http.StatusOK, stored)
	}
}

func respond(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // The client has disconnected.
}
