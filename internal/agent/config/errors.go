package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxErrors keeps a file that isn't ours from filling a screen or the memory.
const maxErrors = 100

// Error is one thing that is wrong in a file, and what would be right.
type Error struct {
	File string
	// Line is 0 where the file as a whole is meant.
	Line   int
	Reason string
}

func (c Error) Error() string {
	if c.Line == 0 {
		return fmt.Sprintf("%s: %s", c.File, c.Reason)
	}
	return fmt.Sprintf("%s:%d: %s", c.File, c.Line, c.Reason)
}

// Errors are all that is wrong, in the order of the file.
type Errors []Error

func (c Errors) Error() string {
	text := make([]string, len(c))
	for i, complaint := range c {
		text[i] = complaint.Error()
	}
	return strings.Join(text, "\n")
}

// page is a file that is being read. What is wrong with it gathers here, so that
// a user mends it all at once.
type parser struct {
	file string
	// given out by an operator: a member may be nowhere yet, and there may be keys
	// of a newer operator's.
	fromOperator bool
	errors       Errors
	omitted      int
}

func (p *parser) errorf(line int, format string, args ...any) {
	if len(p.errors) == maxErrors {
		p.omitted++
		return
	}
	p.errors = append(p.errors, Error{File: p.file, Line: line, Reason: fmt.Sprintf(format, args...)})
}

func (p *parser) err() error {
	if len(p.errors) == 0 {
		return nil
	}
	slices.SortStableFunc(p.errors, func(a, b Error) int { return cmp.Compare(a.Line, b.Line) })
	if p.omitted > 0 {
		p.errors = append(p.errors, Error{File: p.file, Reason: fmt.Sprintf("and %d more complaints", p.omitted)})
	}
	return p.errors
}
