package output

import (
	"io"
	"strings"
	"unicode"
)

// Error reports that the output of a command is incomplete.
type Error struct{ err error }

func (e *Error) Error() string { return "cannot write the output: " + e.err.Error() }
func (e *Error) Unwrap() error { return e.err }

// Printer prints text that others wrote, such as the messages of agents and of other users' objects, without its
// control characters: a terminal would obey them, and could show another coordinator than the text has.
type Printer struct {
	To io.Writer
	// Fail is called with the first error.
	Fail func(error)
}

// Write implements io.Writer. A character that isn't printed counts as written.
func (p *Printer) Write(text []byte) (int, error) {
	if _, err := io.WriteString(p.To, WithoutControls(string(text))); err != nil {
		p.Fail(&Error{err})
		return 0, err
	}
	return len(text), nil
}

// WithoutControls shows control characters as kubectl does: ^[ is ESC. The ends of lines and tabs remain.
func WithoutControls(text string) string {
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
