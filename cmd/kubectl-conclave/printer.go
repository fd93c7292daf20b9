package main

import (
	"io"
	"os"
	"strings"
	"unicode"

	"golang.org/x/term"
)

// outputError reports that the output of a command is incomplete.
type outputError struct{ err error }

func (e *outputError) Error() string { return "cannot write the output: " + e.err.Error() }
func (e *outputError) Unwrap() error { return e.err }

// printer prints text that others wrote, such as the messages of agents and of other users'
// objects, without its control characters: a terminal would obey them, and could show another
// coordinator than the text has.
type printer struct {
	to io.Writer
	// fail is called with the first error.
	fail func(error)
}

// Write implements io.Writer. A character that isn't printed counts as written.
func (p *printer) Write(text []byte) (int, error) {
	if _, err := io.WriteString(p.to, withoutControls(string(text))); err != nil {
		p.fail(&outputError{err})
		return 0, err
	}
	return len(text), nil
}

// withoutControls shows control characters as kubectl does: ^[ is ESC. The ends of lines and
// tabs remain.
func withoutControls(text string) string {
	if !strings.ContainsFunc(strings.ReplaceAll(text, "\r\n", "\n"), isForbidden) {
		return text
	}
	var shown strings.Builder
	for i, r := range text {
		const del, caret = 0x7f, 0x40
		switch {
		case !isForbidden(r), strings.HasPrefix(text[i:], "\r\n"):
			shown.WriteRune(r)
		case r <= del:
			shown.WriteString("^" + string(r^caret))
		default:
			shown.WriteRune(unicode.ReplacementChar)
		}
	}
	return shown.String()
}

func isForbidden(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }

// terminalOf returns the terminal to which a command prints, if it does.
func terminalOf(w io.Writer) (*os.File, bool) {
	if p, ok := w.(*printer); ok {
		w = p.to
	}
	file, ok := w.(*os.File)
	return file, ok && term.IsTerminal(int(file.Fd()))
}
