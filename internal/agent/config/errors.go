package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxErrors bounds the errors reported for one file.
const maxErrors = 100

// Error is one mistake in a file, with what would be right.
type Error struct {
	File string
	// Line is 0 if the error concerns the file as a whole.
	Line   int
	Reason string
}

func (e Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Reason)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason)
}

// Errors are all mistakes in a file, ordered by line.
type Errors []Error

func (e Errors) Error() string {
	text := make([]string, len(e))
	for i, one := range e {
		text[i] = one.Error()
	}
	return strings.Join(text, "\n")
}

// parser reads one file. It collects errors instead of stopping at the first one,
// so that users can correct all of them at once.
type parser struct {
	file string
	// fromOperator is true for a document of the operator. In a document, members may
	// lack an address, and unknown keys are ignored because the operator may be newer.
	fromOperator bool
	errors       Errors
	// omitted counts the errors beyond maxErrors.
	omitted int
}

// errorf records an error in a line of the file.
func (p *parser) errorf(line int, format string, args ...any) {
	if len(p.errors) == maxErrors {
		p.omitted++
		return
	}
	p.errors = append(p.errors, Error{File: p.file, Line: line, Reason: fmt.Sprintf(format, args...)})
}

// err returns the recorded errors as Errors, or nil if there are none.
func (p *parser) err() error {
	if len(p.errors) == 0 {
		return nil
	}
	slices.SortStableFunc(p.errors, func(a, b Error) int { return cmp.Compare(a.Line, b.Line) })
	if p.omitted > 0 {
		p.errors = append(p.errors, Error{File: p.file, Reason: fmt.Sprintf("and %d more errors", p.omitted)})
	}
	return p.errors
}
