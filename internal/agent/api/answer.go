package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/conclave-dev/conclave/internal/agent/group"
)

// answer writes a line of JSON. When the other side has gone there is nobody to
// tell, so what comes of writing isn't looked at.
func answer(w http.ResponseWriter, code int, body any) {
	line, err := json.Marshal(body)
	if err != nil {
		// Only what has no JSON at all comes here, and nothing of ours does.
		code, line = http.StatusInternalServerError, []byte(`{"error":"the answer can't be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(line, '\n'))
}

func refuse(w http.ResponseWriter, code int, err error) {
	answer(w, code, map[string]string{"error": err.Error()})
}

func plain(w http.ResponseWriter, code int, lines ...string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, strings.Join(lines, "\n")+"\n")
}

// fail answers with what a group had against a request.
func fail(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	switch {
	case errors.Is(err, group.ErrNoSession):
		code = http.StatusNotFound
	case errors.Is(err, group.ErrWrongTerm), errors.Is(err, group.ErrNotLeading), errors.Is(err, group.ErrNoSuccessor):
		code = http.StatusConflict
	case errors.Is(err, group.ErrHandOverTimeout):
		code = http.StatusGatewayTimeout
	case errors.Is(err, group.ErrClosed), errors.Is(err, context.Canceled):
		code = http.StatusServiceUnavailable
	}
	refuse(w, code, err)
}

// bodyMax is far more than the largest body that makes sense.
const bodyMax = 4 << 10

// read takes the request's body, which may be missing, as one JSON object with
// known fields. If it is none, it says so to the other side.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMax))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		refuse(w, http.StatusRequestEntityTooLarge, fmt.Errorf("a body can have %d bytes at most", bodyMax))
		return false
	case err != nil:
		refuse(w, http.StatusBadRequest, fmt.Errorf("the body ended early: %w", err))
		return false
	case len(bytes.TrimSpace(body)) == 0:
		return true
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		refuse(w, http.StatusBadRequest, fmt.Errorf("the body must be a JSON object: %w", err))
		return false
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		refuse(w, http.StatusBadRequest, errors.New("the body must be one JSON object, and nothing after it"))
		return false
	}
	return true
}
