package client

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"
)

// event is a server-sent event.
type event struct {
	kind string
	data []byte
}

var errSilent = fmt.Errorf("the agent sent no data for %s", maxSilence)

// readEvents calls handle for each event of a stream, until the stream or ctx ends or handle returns an error. It
// reports whether the agent accepted the request.
func (a *agent) readEvents(ctx context.Context, path string, handle func(event) error) (accepted bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path, http.NoBody)
	if err != nil {
		return false, err
	}
	request.Header.Set("Accept", "text/event-stream")
	response, err := a.http.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	silence := time.AfterFunc(maxSilence, func() { cancel(errSilent) })
	defer silence.Stop()
	kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode != http.StatusOK || err != nil || kind != "text/event-stream" {
		// If reading fails, the message is incomplete.
		body, _ := io.ReadAll(io.LimitReader(response.Body, maxResponse))
		return false, newStatusError(response.StatusCode, body)
	}
	err = scanEvents(response.Body, func() { silence.Reset(maxSilence) }, func(e event) error {
		// The time that handle takes doesn't count as silence of the agent.
		silence.Stop()
		defer silence.Reset(maxSilence)
		return handle(e)
	})
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return true, err
}

// scanEvents reads events from a stream. It calls onLine for each line, and handle for each event.
func scanEvents(from io.Reader, onLine func(), handle func(event) error) error {
	var e event
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxResponse)
	for lines.Scan() {
		onLine()
		line := lines.Bytes()
		if len(line) == 0 {
			if len(e.data) > 0 {
				if err := handle(e); err != nil {
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
		case "data":
			if len(e.data) > 0 {
				e.data = append(e.data, '\n')
			}
			if e.data = append(e.data, value...); len(e.data) > maxResponse {
				return fmt.Errorf("event must have at most %d bytes", maxResponse)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}
