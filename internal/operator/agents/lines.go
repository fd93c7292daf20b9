package agents

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

const (
	// lineBuffer is small, since a session can be idle for hours. lineReader assembles a longer line from several reads.
	lineBuffer = 512
	// maxLine is more than a report on a hundred members with the longest names.
	maxLine = 64 << 10
)

// lineReader reads lines from a connection that returns errNoData.
type lineReader struct {
	buffer *bufio.Reader
	// part is the begin of a line whose end hasn't been read.
	part []byte
	// keep is called with the number of bytes that the reader keeps in addition; negative when it discards them. An error
	// ends the line.
	keep func(bytes int) error
	kept int
}

func newLineReader(r io.Reader, keep func(bytes int) error) lineReader {
	return lineReader{buffer: bufio.NewReaderSize(r, lineBuffer), keep: keep}
}

// next returns the next line without its end. It is valid until the next call. After
// errNoData, the following call continues.
func (l *lineReader) next() ([]byte, error) {
	if l.part == nil {
		l.discard()
	}
	for {
		part, err := l.buffer.ReadSlice('\n')
		if err == nil {
			part = part[:len(part)-1]
			if l.part != nil {
				part, l.part = append(l.part, part...), nil
			}
			return part, nil
		}
		if len(l.part)+len(part) > maxLine {
			return nil, fmt.Errorf("report must have at most %d bytes", maxLine)
		}
		if err := l.keep(len(part)); err != nil {
			return nil, err
		}
		l.kept += len(part)
		l.part = append(l.part, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}

// discard discards the last line, or what has been read of it.
func (l *lineReader) discard() {
	if l.kept > 0 {
		_ = l.keep(-l.kept) // It returns no error for a negative number.
	}
	l.kept, l.part = 0, nil
}
