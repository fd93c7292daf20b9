package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// screen is a terminal in raw mode, with its alternate screen.
type screen struct {
	in, out *os.File
	before  *term.State
	color   bool
}

// openScreen switches the terminal. The caller must call close.
func openScreen(in, out *os.File) (*screen, error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("cannot control the terminal: %w", err)
	}
	fmt.Fprint(out, "\x1b[?1049h\x1b[?25l") // The alternate screen, without a cursor.
	return &screen{in: in, out: out, before: before, color: os.Getenv("NO_COLOR") == ""}, nil
}

// close restores the terminal.
func (s *screen) close() error {
	fmt.Fprint(s.out, "\x1b[?25h\x1b[?1049l")
	return term.Restore(int(s.in.Fd()), s.before)
}

func (s *screen) draw(v view) {
	columns, rows, err := term.GetSize(int(s.out.Fd()))
	if err != nil || columns <= 0 || rows <= 0 {
		columns, rows = 80, 24
	}
	// A failed write to the terminal cannot be reported.
	_, _ = io.WriteString(s.out, frame(v.lines(columns, rows), s.color))
}

// frame returns what a terminal needs to show lines instead of the previous ones.
func frame(lines []line, color bool) string {
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, l := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		if color && l.style != plain {
			fmt.Fprintf(&b, "\x1b[%sm%s\x1b[0m", l.style, l.text)
		} else {
			b.WriteString(l.text)
		}
		b.WriteString("\x1b[K")
	}
	b.WriteString("\x1b[J")
	return b.String()
}
