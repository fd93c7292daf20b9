package agents

import (
	"strings"
	"testing"
)

func TestStaleReadIsNotLinearizable(t *testing.T) {
	h := newHistory()
	h.add(request{write: true, value: 1, at: "a"}, 1, 0, 10)
	h.add(request{write: true, value: 2, at: "b"}, 2, 20, 30)
	h.add(request{at: "b"}, 2, 25, 40)
	h.add(request{at: "a"}, 1, 15, 28)
	if err := h.verify(); err != nil {
		t.Errorf("the old value may be read while the new one is being written: %v", err)
	}
	h.add(request{at: "a"}, 1, 50, 60)
	if err := h.verify(); err == nil || !strings.Contains(err.Error(), "at a, reads 1") {
		t.Errorf("the checker said %v about a stale read", err)
	}
}

func TestUnansweredWriteMayHappenAtAnyTime(t *testing.T) {
	h := newHistory()
	h.add(request{write: true, value: 1, at: "a"}, 1, 0, never)
	h.add(request{at: "b"}, 0, 10, 20)
	h.add(request{at: "b"}, 1, 30, 40)
	if err := h.verify(); err != nil {
		t.Error(err)
	}
	h.add(request{at: "b"}, 0, 50, 60)
	if err := h.verify(); err == nil {
		t.Error("a value went back, and the checker didn't see it")
	}
}

func TestStorageKnowsWhoBearsAToken(t *testing.T) {
	s := newStorage()
	for _, try := range []struct {
		token    uint64
		bearer   string
		accepted bool
	}{{5, "a", true}, {7, "b", true}, {5, "a", false}, {7, "b", true}} {
		if err := s.write(try.token, try.bearer, 0, 1); (err == nil) != try.accepted {
			t.Errorf("token %d of %s: %v", try.token, try.bearer, err)
		}
	}
	if err := s.verify(); err != nil {
		t.Error(err)
	}
	if _, err := s.load(7, "c"); err != nil {
		t.Error(err)
	}
	if err := s.verify(); err == nil {
		t.Error("two applications came with the same token, and nobody saw it")
	}
}
