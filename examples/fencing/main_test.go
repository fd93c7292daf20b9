package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestLowerTokensAreRejected(t *testing.T) {
	r := &register{}
	for _, c := range []struct {
		query, value string
		code         int
		after        string
	}{
		{"?token=7", "a", http.StatusOK, "a"},
		{"?token=7", "b", http.StatusOK, "b"},
		{"?token=9", "c", http.StatusOK, "c"},
		{"?token=8", "late", http.StatusConflict, "c"},
		{"?token=-1", "bad", http.StatusBadRequest, "c"},
		{"", "bad", http.StatusBadRequest, "c"},
	} {
		recorder := httptest.NewRecorder()
		r.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/"+c.query, strings.NewReader(c.value)))
		if recorder.Code != c.code || string(r.value) != c.after {
			t.Errorf("%q: got status %d and value %q, want %d and %q", c.query, recorder.Code, r.value, c.code, c.after)
		}
	}
}
