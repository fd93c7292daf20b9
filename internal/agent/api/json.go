package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/conclave-dev/conclave/internal/agent/group"
)

// writeJSON writes a response of one line of JSON. It ignores write errors: the client has disconnected.
func writeJSON(w http.ResponseWriter, code int, body any) {
	line, err := json.Marshal(body)
	if err != nil {
		// No type of this package causes that.
		code, line = http.StatusInternalServerError, []byte(`{"error":"cannot encode the response as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(line)+1)) // HTTP/1.0 has no other mark of the end.
	w.WriteHeader(code)
	_, _ = w.Write(append(line, '\n'))
}

type failure struct {
	status int
	Error  string `json:"error,omitempty"`
	Reason string `json:"reason,omitempty"`
}

func writeError(w http.ResponseWriter, code int, err error) {
	writeJSON(w, code, failure{Error: err.Error()})
}

// The reasons why a group can't respond, as distinct from a member that isn't the coordinator, which has the same
// status.
const (
	reasonNoDocument     = "NoDocument"
	reasonLeaving        = "Leaving"
	reasonTooManyStreams = "TooManyStreams"
)

func writeText(w http.ResponseWriter, code int, lines ...string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, strings.Join(lines, "\n")+"\n")
}

func groupFailure(err error) failure {
	code, reason := http.StatusInternalServerError, ""
	switch {
	case errors.Is(err, group.ErrNoSession):
		code = http.StatusNotFound
	case errors.Is(err, group.ErrWrongTerm), errors.Is(err, group.ErrNotLeading), errors.Is(err, group.ErrNoSuccessor):
		code = http.StatusConflict
	case errors.Is(err, group.ErrHandOverTimeout):
		code = http.StatusGatewayTimeout
	case errors.Is(err, group.ErrClosed), errors.Is(err, context.Canceled):
		code, reason = http.StatusServiceUnavailable, reasonLeaving
	}
	return failure{code, err.Error(), reason}
}

func writeGroupError(w http.ResponseWriter, err error) {
	failed := groupFailure(err)
	writeJSON(w, failed.status, failed)
}

// bodyMax is far more than the largest valid body of most requests.
const bodyMax = 4 << 10

// readBody reads the body of a request, of so many bytes at most. If it can't, it writes an error, in which the body is
// called what, and returns false.
func readBody(w http.ResponseWriter, r *http.Request, most int64, what string) ([]byte, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		writeError(w, http.StatusRequestEntityTooLarge, fmt.Errorf("the %s must have at most %d bytes", what, most))
	} else if err != nil {
		writeError(w, http.StatusBadRequest, fmt.Errorf("cannot read the %s: %w", what, err))
	}
	return body, err == nil
}

// readJSON reads the body of a request, of so many bytes at most, as one JSON object without unknown fields. The
// body may be empty. If it is invalid, readJSON writes an error and returns false.
func readJSON(w http.ResponseWriter, r *http.Request, most int64, into any) bool {
	body, ok := readBody(w, r, most, "body")
	if !ok || len(bytes.TrimSpace(body)) == 0 {
		return ok
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		writeError(w, http.StatusBadRequest, fmt.Errorf("the body must be a JSON object: %w", err))
		return false
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		writeError(w, http.StatusBadRequest, errors.New("the body must be a single JSON object"))
		return false
	}
	return true
}
