package agents

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

const (
	// lineBuffer is small, since a session can be idle for hours. lineReader assembles a
	// longer line from several reads.
	lineBuffer = 512
	// maxLine is more than a report on a thousand members with the longest names.
	maxLine = 1 << 20
)

// lineReader reads lines from a connection that returns errNoData.
type lineReader struct {
	buffer *bufio.Reader
	// part is the begin of a line whose end hasn't been read.
	part []byte
}

func newLineReader(r io.Reader) lineReader {
	return lineReader{buffer: bufio.NewReaderSize(r, lineBuffer)}
}

// next returns the next line without its end. It is valid until the next call. After
// errNoData, the following call continues.
func (l *lineReader) next() ([]byte, error) {
	for {
		part, err := l.buffer.ReadSlice('\n')
		if err == nil {
			part = part[:len(part)-1]
			if l.part != nil {
				part, l.part = append(l.part, part...), nil
			}
			return part, nil
		}
		l.part = append(l.part, part...)
		if len(l.part) > maxLine {
			return nil, fmt.Errorf("report must have at most %d bytes", maxLine)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}
