package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// progressBar redraws a bar on one line of a terminal and removes it at the end. All
// methods do nothing if it is nil.
type progressBar struct {
	terminal io.Writer
	unit     string
	// total is the number of units; 0 if it is unknown.
	total int
	// limit is the duration of the run; 0 if it isn't limited.
	limit   time.Duration
	started time.Time
	now     func() time.Time
	drawn   time.Time
	// columns returns the current width of the terminal.
	columns func() int
}

// barWidth is the length of the bar in characters.
const barWidth = 30

// redrawInterval is the minimum time between two updates.
const redrawInterval = 100 * time.Millisecond

// newTerminalProgress returns a bar on w, or nil if w isn't a terminal.
func newTerminalProgress(w io.Writer, unit string, total int, limit time.Duration) *progressBar {
	f, ok := terminalOf(w)
	if !ok || os.Getenv("TERM") == "dumb" {
		return nil
	}
	p := newProgress(f, unit, total, limit, time.Now)
	p.columns = func() int {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
		return helpColumns
	}
	return p
}

func newProgress(w io.Writer, unit string, total int, limit time.Duration, now func() time.Time) *progressBar {
	return &progressBar{
		terminal: w, unit: unit, total: total, limit: limit, started: now(), now: now, columns: func() int { return helpColumns },
	}
}

// update draws the bar, unless it was drawn a moment ago.
func (p *progressBar) update(done int) {
	if p == nil {
		return
	}
	now := p.now()
	if now.Sub(p.drawn) < redrawInterval {
		return
	}
	p.drawn = now
	elapsed := now.Sub(p.started)
	part := float64(done) / float64(max(1, p.total))
	if p.limit > 0 {
		part = float64(elapsed) / float64(p.limit)
	}
	full := int(min(1, part) * barWidth)
	bar := "[" + strings.Repeat("#", full) + strings.Repeat("-", barWidth-full) + "] "
	rate := float64(done) / max(elapsed.Seconds(), 1e-3)
	text := fmt.Sprintf("%3.0f%%  %d %s, %.0f/s", 100*min(1, part), done, p.unit, rate)
	// clear can't remove text that wraps to a second line.
	room := max(1, p.columns()) - 1
	if len(bar)+len(text) <= room {
		text = bar + text
	}
	fmt.Fprint(p.terminal, "\r\x1b[K"+text[:min(len(text), room)])
}

// clear removes the bar.
func (p *progressBar) clear() {
	if p != nil {
		fmt.Fprint(p.terminal, "\r\x1b[K")
	}
}

// updateOf draws the bar when the total is known only during the run.
func (p *progressBar) updateOf(done, total int) {
	if p != nil {
		p.total = total
		p.update(done)
	}
}
