package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"
)

// event is one of a stream of server-sent events.
type event struct {
	kind, id string
	data     []byte
}

var errSilent = errors.New("the agent has fallen silent")

// stream hands over the events of a path, until either side has enough. It
// reports whether the agent began to answer.
func (a *agent) stream(ctx context.Context, path, after string, each func(event) error) (began bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path, http.NoBody)
	if err != nil {
		return false, err
	}
	request.Header.Set("Accept", "text/event-stream")
	if after != "" {
		request.Header.Set("Last-Event-ID", after)
	}
	response, err := a.http.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode != http.StatusOK || err != nil || kind != "text/event-stream" {
		// What can't be read of a refusal is missing from the message, no more.
		body, _ := io.ReadAll(io.LimitReader(response.Body, answerMax))
		return false, refused(response.StatusCode, body)
	}
	silence := time.AfterFunc(silenceMax, func() { cancel(errSilent) })
	defer silence.Stop()
	err = scan(response.Body, func() { silence.Reset(silenceMax) }, func(e event) error {
		// Whoever takes its time with an event is not the agent.
		silence.Stop()
		defer silence.Reset(silenceMax)
		return each(e)
	})
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return true, err
}

// scan reads events from a stream, and calls heard for each line of it.
func scan(from io.Reader, heard func(), each func(event) error) error {
	var e event
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, answerMax)
	for lines.Scan() {
		heard()
		line := lines.Bytes()
		if len(line) == 0 {
			if len(e.data) > 0 {
				if err := each(e); err != nil {
					return err
				}
			}
			e = event{}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			e.kind = string(value)
		case "id":
			e.id = string(value)
		case "data":
			if len(e.data) > 0 {
				e.data = append(e.data, '\n')
			}
			if e.data = append(e.data, value...); len(e.data) > answerMax {
				return fmt.Errorf("an event of more than %d bytes", answerMax)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}
