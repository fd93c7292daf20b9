// Package asynclog writes log lines without blocking the program that logs.
//
// An agent's stderr is usually a pipe to a container runtime or a log collector. If the reader stalls, a write to the
// pipe blocks. A goroutine that logs between two steps of an election must not wait for that.
//
// # What is not guaranteed
//
// Lines are lost if the reader stalls, and at the end of a process that crashes. Lines
// that aren't lost keep their order.
package asynclog

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// queueMax bounds the bytes that wait for a stalled reader. It is about a thousand lines.
const queueMax = 128 << 10

// Writer passes text to another io.Writer, in a goroutine of its own. If too much text
// waits, it drops whole writes, and counts them. When the other writer continues, Writer
// writes one line with the number of dropped lines at the place of these lines.
type Writer struct {
	to io.Writer

	mu sync.Mutex
	// queue has the text that the goroutine hasn't taken yet.
	queue []byte
	// dropped is the number of dropped writes since the goroutine last took the queue. The queue accepts nothing behind a
	// dropped write, so that the line with this number is at the right place.
	dropped uint64
	total   uint64
	closed  bool
	wake    chan struct{}
	done    chan struct{}
}

// New returns a Writer. Close ends its goroutine.
func New(to io.Writer) *Writer {
	w := &Writer{to: to, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go w.run()
	return w
}

// Write queues or drops the text. It never blocks and never fails.
func (w *Writer) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.dropped > 0 || len(w.queue)+len(text) > queueMax {
		w.dropped++
		w.total++
		return len(text), nil
	}
	w.queue = append(w.queue, text...)
	select {
	case w.wake <- struct{}{}:
	default: // The goroutine is going to take this text, too.
	}
	return len(text), nil
}

// Dropped returns the number of dropped lines: writes that found the queue full, or that the other writer refused.
func (w *Writer) Dropped() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

// Close waits until the queue is written, but at most for the given time. It drops everything that is written later.
func (w *Writer) Close(limit time.Duration) {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.wake)
	}
	w.mu.Unlock()
	select {
	case <-w.done:
	case <-time.After(limit):
	}
}

func (w *Writer) run() {
	defer close(w.done)
	var batch []byte
	for open := true; open; {
		_, open = <-w.wake
		for {
			batch = w.take(batch[:0])
			if len(batch) == 0 {
				break
			}
			if _, err := w.to.Write(batch); err != nil {
				w.countFailed(batch)
			}
		}
	}
}

// take returns the queue. It reuses the memory of the previous batch for the next queue.
func (w *Writer) take(previous []byte) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	batch := w.queue
	w.queue = previous
	if w.dropped > 0 {
		batch = fmt.Appendf(batch, "time=%s level=WARN msg=\"dropped log lines: stderr was blocked\" lines=%d\n",
			time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"), w.dropped)
		w.dropped = 0
	}
	return batch
}

func (w *Writer) countFailed(batch []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range batch {
		if b == '\n' {
			w.total++
		}
	}
}
