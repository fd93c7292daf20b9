package nodefault

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Node injects faults into a node.
type Node interface {
	// Check returns the actions with the reasons for which they aren't possible.
	Check(*Request) map[string]string
	// Inject injects a fault. If the fault lasts, Inject returns a function that undoes it.
	Inject(*Request) (undo func() error, err error)
}

// Serve answers requests until they end or ctx does. Then no fault lasts any longer.
func Serve(ctx context.Context, in io.Reader, out io.Writer, node Node) (err error) {
	s := &server{node: node}
	defer func() { err = errors.Join(err, s.undo()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := make(chan string)
	go read(ctx, in, lines)
	answers := json.NewEncoder(out)
	for {
		select {
		case line, more := <-lines:
			if !more {
				return nil
			}
			if err := answers.Encode(s.answer(line)); err != nil {
				return err
			}
		case <-s.limit:
			if err := s.undo(); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// read sends the lines of in.
func read(ctx context.Context, in io.Reader, to chan<- string) {
	defer close(to)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		select {
		case to <- lines.Text():
		case <-ctx.Done():
			return
		}
	}
}

// server has the fault that lasts, if there is one.
type server struct {
	node  Node
	lasts func() error
	limit <-chan time.Time
}

func (s *server) answer(line string) Response {
	var request Request
	err := json.Unmarshal([]byte(line), &request)
	switch {
	case err != nil:
	case request.Action == Check:
		return Response{Actions: s.node.Check(&request)}
	case request.Action == Undo:
		err = s.undo()
	default:
		err = s.inject(&request)
	}
	if err != nil {
		return Response{Error: err.Error()}
	}
	return Response{}
}

func (s *server) inject(request *Request) (err error) {
	if s.lasts != nil {
		return errors.New("another fault lasts")
	}
	if s.lasts, err = s.node.Inject(request); err != nil || s.lasts == nil {
		return err
	}
	if request.Limit <= 0 {
		return errors.Join(fmt.Errorf("a fault that lasts needs a limit, got %s", request.Limit), s.undo())
	}
	s.limit = time.After(request.Limit)
	return nil
}

// undo undoes the fault that lasts. If that fails, the fault still lasts.
func (s *server) undo() error {
	if s.lasts != nil {
		if err := s.lasts(); err != nil {
			return err
		}
	}
	s.lasts, s.limit = nil, nil
	return nil
}
