package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// printer prints lines. On a terminal, it shows the present activity below them.
type printer struct {
	mu       sync.Mutex
	out      io.Writer
	columns  func() int // The width of the terminal; nil without a terminal.
	activity string
	begun    time.Time
}

func newPrinter(out io.Writer) *printer {
	p := &printer{out: out}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		p.columns = func() int { return terminalColumns(file) }
	}
	return p
}

func terminalColumns(file *os.File) int {
	columns, _, err := term.GetSize(int(file.Fd()))
	if err != nil || columns <= 0 {
		return 80
	}
	return columns
}

func (p *printer) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	n, err := p.out.Write(text)
	p.draw()
	return n, err
}

// show sets the activity. Without a terminal, it prints it as a line.
func (p *printer) show(activity string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.columns == nil {
		if activity != "" {
			fmt.Fprintln(p.out, activity)
		}
		return
	}
	p.clear()
	if p.activity == "" {
		p.begun = time.Now()
	}
	p.activity = activity
	p.draw()
}

// tick updates the elapsed time of the activity.
func (p *printer) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	p.draw()
}

func (p *printer) clear() {
	if p.columns != nil && p.activity != "" {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

func (p *printer) draw() {
	if p.columns != nil && p.activity != "" {
		fmt.Fprint(p.out, fit(fmt.Sprintf("[%s] %s", time.Since(p.begun).Round(time.Second), strings.TrimSpace(p.activity)), p.columns()-1))
	}
}

// fit shortens a text to a number of columns.
func fit(text string, columns int) string {
	if runes := []rune(text); len(runes) > columns {
		return string(runes[:max(columns-1, 0)]) + "…"
	}
	return text
}
