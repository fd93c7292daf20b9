package main

import (
	"fmt"
	"os"

	"golang.org/x/term"

	groupview "github.com/conclave-dev/conclave/internal/plugin/watch/view"
)

// screen is a terminal in raw mode, with its alternate screen.
type screen struct {
	in, out *os.File
	before  *term.State
}

// openScreen switches the terminal. The caller must call close.
func openScreen(in, out *os.File) (*screen, error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("cannot control the terminal: %w", err)
	}
	fmt.Fprint(out, "\x1b[?1049h\x1b[?25l") // The alternate screen, without a cursor.
	return &screen{in: in, out: out, before: before}, nil
}

// close restores the terminal.
func (s *screen) close() error {
	fmt.Fprint(s.out, "\x1b[?25h\x1b[?1049l")
	return term.Restore(int(s.in.Fd()), s.before)
}

func (s *screen) draw(v *view) {
	groupview.Show(s.out, v.lines())
}
