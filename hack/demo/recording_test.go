package main

import (
	"encoding/xml"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/golden"
)

func linesOf(texts ...string) []line {
	lines := make([]line, len(texts))
	for i, text := range texts {
		lines[i] = line{text: text}
	}
	return lines
}

// A recording contains each change of the state. It cuts long times without a change, however many locks are granted meanwhile.
func TestRecordingCutsStills(t *testing.T) {
	r := &recording{}
	r.add(0, linesOf("Coordinator  a", "Locks        1 granted"))
	r.add(1*time.Second, linesOf("Coordinator  a", "Locks        1 granted"))
	r.add(2*time.Second, linesOf("Coordinator  a", "Locks        2 granted"))
	r.add(9*time.Second, linesOf("Coordinator  a", "Locks        3 granted"))
	r.add(10*time.Second, linesOf("Coordinator  b < \"c\" & d", "Locks        4 granted"))
	r.add(11*time.Second, linesOf("Coordinator  e", "Locks        4 granted"))
	times := []time.Duration{0, 2 * time.Second, 4 * time.Second, 5 * time.Second}
	if len(r.frames) != len(times) {
		t.Fatalf("got %d frames, want %d: %v", len(r.frames), len(times), r.frames)
	}
	for i, f := range r.frames {
		if f.at != times[i] {
			t.Errorf("frame %d: got %s, want %s", i, f.at, times[i])
		}
	}
	svg := r.svg()
	for decoder := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the SVG must be XML: %v", err)
		}
	}
	golden.Compare(t, filepath.Join("testdata", "recording.svg"), svg)
}
