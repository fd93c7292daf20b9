package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// progress draws a bar on one line, over and over, and takes it away at the end.
type progress struct {
	to   io.Writer
	unit string
	// of is how many there are to do; 0 is not known.
	of int
	// limit is how long it may take; 0 is as long as it takes.
	limit   time.Duration
	started time.Time
	now     func() time.Time
	drawn   time.Time
	// columns is how wide the terminal is at the moment.
	columns func() int
}

// barWidth is the bar's length in characters.
const barWidth = 30

// redrawn is how often the bar is drawn at most.
const redrawn = 100 * time.Millisecond

// onTerminal is a bar on w, or nil where that isn't a terminal.
func onTerminal(w io.Writer, unit string, of int, limit time.Duration) *progress {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	p := newProgress(w, unit, of, limit, time.Now)
	p.columns = func() int {
		if wide, _, err := term.GetSize(int(f.Fd())); err == nil && wide > 0 {
			return wide
		}
		return columns
	}
	return p
}

func newProgress(w io.Writer, unit string, of int, limit time.Duration, now func() time.Time) *progress {
	return &progress{
		to: w, unit: unit, of: of, limit: limit, started: now(), now: now, columns: func() int { return columns },
	}
}

// report draws how far it is. It does nothing without a terminal.
func (p *progress) report(done int) {
	if p == nil {
		return
	}
	now := p.now()
	if now.Sub(p.drawn) < redrawn {
		return
	}
	p.drawn = now
	passed := now.Sub(p.started)
	part := float64(done) / float64(max(1, p.of))
	if p.limit > 0 {
		part = float64(passed) / float64(p.limit)
	}
	full := int(min(1, part) * barWidth)
	bar := "[" + strings.Repeat("#", full) + strings.Repeat("-", barWidth-full) + "] "
	rate := float64(done) / max(passed.Seconds(), 1e-3)
	said := fmt.Sprintf("%3.0f%%  %d %s, %.0f/s", 100*min(1, part), done, p.unit, rate)
	// What goes over into a second line could not be taken away.
	room := max(1, p.columns()) - 1
	if len(bar)+len(said) <= room {
		said = bar + said
	}
	fmt.Fprint(p.to, "\r\x1b[K"+said[:min(len(said), room)])
}

// clear takes the bar away.
func (p *progress) clear() {
	if p != nil {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}

// reportOf draws how far it is, where only the one who works knows how much
// there is to do.
func (p *progress) reportOf(done, of int) {
	if p != nil {
		p.of = of
		p.report(done)
	}
}
