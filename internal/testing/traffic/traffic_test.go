package traffic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/testnet"
)

func TestGapIsTheLongestTimeWithoutAnAnswer(t *testing.T) {
	type times [][3]int // in milliseconds: when a request was sent and ended; and 1 if it failed
	results := []error{nil, fmt.Errorf("dial: %w", errors.New("refused"))}
	for _, c := range []struct {
		name    string
		lasted  int
		answers times
		want    Seen
	}{
		{"no request", 2000, nil, Seen{Gap: 2000, Open: true}},
		{"all answered", 100, times{{0, 1}, {50, 51}, {95, 96}}, Seen{Gap: 50, Requests: 3}},
		{"two waited", 100, times{{0, 70}, {2, 71}, {90, 91}}, Seen{Gap: 70, Requests: 3, Waited: 2}},
		{"failed", 100, times{{0, 1}, {20, 21, 1}, {40, 41, 1}, {98, 99}}, Seen{Gap: 98, Requests: 4, Failed: 2}},
		{"no end", 2000, times{{0, 30}, {31, 32, 1}}, Seen{Gap: 1970, Open: true, Requests: 2, Failed: 1, Waited: 1}},
		{"no time before the end", 1000, times{{0, 1}, {2, 3}}, Seen{Gap: 997, Requests: 2}},
		{"another order", 100, times{{0, 99}, {40, 41}, {90, 91}}, Seen{Gap: 50, Requests: 3, Waited: 1}},
		{"an answer after the end", 100, times{{0, 5}, {90, 400}}, Seen{Gap: 395, Requests: 2, Waited: 1}},
	} {
		var answers []answer
		for _, a := range c.answers {
			const unit = time.Millisecond
			answers = append(answers, answer{time.Duration(a[0]) * unit, time.Duration(a[1]) * unit, results[a[2]]})
		}
		got := summarize(answers, time.Duration(c.lasted)*time.Millisecond)
		expect.Equalf(t, got.Errors["refused"], c.want.Failed, "%s: errors", c.name)
		if got.Errors = nil; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestRoundsAreSummarized(t *testing.T) {
	few := []Clients{
		{New: Seen{Gap: 12.4, Waited: 3}, Kept: Seen{Gap: 9}},
		{New: Seen{Gap: 6500, Failed: 60, Open: true}, Kept: Seen{Gap: 5002, Failed: 1}},
		{New: Seen{Gap: 14.6}, Kept: Seen{Gap: 8}},
	}
	expect.Equalf(t, Cells(few), "15/6500 (1 open)|0/60|0/3|9/5002|0/1|0/0", "three rounds")
	var many []Clients
	for i := range 100 {
		many = append(many, Clients{New: Seen{Gap: float64(100 - i)}})
	}
	expect.Equalf(t, Cells(many), "50/99/100"+strings.Repeat("|0/0/0", 5), "100 rounds")
}

// Two applications lead one after the other, and each is served while it does.
func TestClientsSeeWhenTheApplicationPauses(t *testing.T) {
	const undisturbed, pause, requestsMin = 200 * time.Millisecond, 300 * time.Millisecond, 20
	port, err := testnet.FreePort()
	must.Succeed(t, err)
	address := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}).String()
	lead := func() (stop func()) {
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- Serve(ctx, address) }()
		return func() { end(); expect.Succeedf(t, <-ended, "the application ends") }
	}
	stop := lead()
	sending, end := context.WithCancel(t.Context())
	seen := make(chan Clients, 1)
	go func() { seen <- Measure(sending, address) }()
	time.Sleep(undisturbed)
	stop()
	time.Sleep(pause)
	stop = lead()
	defer func() { stop() }()
	time.Sleep(undisturbed)
	end()
	clients := <-seen
	for _, s := range []Seen{clients.New, clients.Kept} {
		if s.Open || s.Gap < float64(pause.Milliseconds()) || s.Failed < requestsMin || s.Requests < 2*requestsMin ||
			s.Errors["connection refused"] < requestsMin {
			t.Errorf("got %+v, want a gap of %s with refused connections", s, pause)
		}
	}
}
