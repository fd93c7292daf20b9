package agents

import (
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/expect"
)

func TestStaleReadIsDetected(t *testing.T) {
	h := newHistory()
	h.add(request{write: true, value: 1, at: "a"}, 1, 0, 10)
	h.add(request{write: true, value: 2, at: "b"}, 2, 20, 30)
	h.add(request{at: "b"}, 2, 25, 40)
	h.add(request{at: "a"}, 1, 15, 28)
	expect.Succeedf(t, h.verify(), "read of the old value during a write")
	h.add(request{at: "a"}, 1, 50, 60)
	if err := h.verify(); err == nil || !strings.Contains(err.Error(), "at a, reads 1") {
		t.Errorf("stale read: got error %v, want one that shows it", err)
	}
}

func TestWriteWithoutResponseMayHappenAtAnyTime(t *testing.T) {
	h := newHistory()
	h.add(request{write: true, value: 1, at: "a"}, 1, 0, noResponse)
	h.add(request{at: "b"}, 0, 10, 20)
	h.add(request{at: "b"}, 1, 30, 40)
	expect.Succeed(t, h.verify())
	h.add(request{at: "b"}, 0, 50, 60)
	if err := h.verify(); err == nil {
		t.Error("read of an older value after a newer one: got no error")
	}
}

func TestStorageDetectsATokenOfTwoClients(t *testing.T) {
	s := newStorage()
	for _, try := range []struct {
		token    uint64
		client   string
		accepted bool
	}{{5, "a", true}, {7, "b", true}, {5, "a", false}, {7, "b", true}} {
		if err := s.write(try.token, try.client, 0, 1); (err == nil) != try.accepted {
			t.Errorf("token %d of %s: got error %v, want accepted %t", try.token, try.client, err, try.accepted)
		}
	}
	expect.Succeed(t, s.verify())
	if _, err := s.load(7, "c"); err != nil {
		t.Error(err)
	}
	if err := s.verify(); err == nil {
		t.Error("two clients with the same token: got no error")
	}
}
