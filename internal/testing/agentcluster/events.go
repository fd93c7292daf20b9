package agentcluster

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// event is a server-sent event.
type event struct {
	at       time.Time
	id, kind string
	data     []byte
}

// readEvents calls handle for each event of a stream and returns the reason why the
// stream ended. An end-of-file is an error too: an agent never ends a stream itself.
func readEvents(response *http.Response, handle func(event) error) error {
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
			if err := handle(current); err != nil {
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
