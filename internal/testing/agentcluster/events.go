package agentcluster

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// event is one of a text/event-stream.
type event struct {
	at       time.Time
	id, kind string
	data     []byte
}

// readEvents passes on the events of a stream, and returns why it ended. The end
// of the file is an end like any other: the agent never ends a stream itself.
func readEvents(response *http.Response, take func(event) error) error {
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", response.Status)
	}
	var current event
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if line := lines.Text(); line != "" {
			current.add(line)
			continue
		}
		if current.data != nil {
			current.at = time.Now()
			if err := take(current); err != nil {
				return err
			}
		}
		current = event{}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.EOF
}

func (e *event) add(line string) {
	field, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch field {
	case "id":
		e.id = value
	case "event":
		e.kind = value
	case "data":
		e.data = append(e.data, value...)
	}
}
