package main

import (
	"fmt"
	"strings"
	"time"
)

// view is what the live view shows at one moment.
type view struct {
	status   status
	nodes    map[string]string // The node of each pod.
	isolated string            // The node that is isolated, or "".
	work     work
	fault    string // The last fault, and what came of it.
	now      time.Time
}

// work is what the application has done.
type work struct {
	steps int
	pod   string
	token string
	at    time.Time // The time of the last step.
}

// style is how a line is shown. Its value is an SGR parameter of the terminal.
type style string

const (
	plain  style = ""
	bold   style = "1"
	faint  style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
)

type line struct {
	text  string
	style style
}

// keys returns the line that explains the keys.
func (v view) keys(columns int) string {
	wide, narrow := "isolate its node", "node"
	if v.isolated != "" {
		wide, narrow = "restore "+v.isolated, "restore"
	}
	keys := "a  kill the coordinator's agent    p  delete its pod    n  " + wide + "    q  quit"
	if len(keys) > columns {
		return "a agent  p pod  n " + narrow + "  q quit"
	}
	return keys
}

// lines renders the view for a terminal. The last line, with the keys, is always shown.
func (v view) lines(columns, rows int) []line {
	lines := v.head()
	lines = append(lines, line{}, line{fmt.Sprintf("%-12s %8s   %-12s %-10s %s", "POD", "PRIORITY", "STATUS", "NODE", "NOTE"), faint})
	for _, r := range v.status.Processes {
		lines = append(lines, v.row(r))
	}
	lines = append(lines, line{})
	if len(lines) > rows-1 {
		lines = lines[:max(rows-1, 0)]
	}
	lines = append(lines, line{v.keys(columns), faint})
	for i := range lines {
		lines[i].text = fit(strings.TrimRight(lines[i].text, " "), columns)
	}
	return lines
}

func (v view) head() []line {
	coordinator := line{"Coordinator  none: an election is running", yellow}
	if c := v.status.Coordinator; c != nil {
		coordinator = line{fmt.Sprintf("Coordinator  %s on %s, term %d", c.Pod, v.nodes[c.Pod], c.Term), bold}
	}
	application := "Application  has not worked yet"
	if v.work.steps > 0 {
		application = fmt.Sprintf("Application  %d steps; the last one by %s %s ago, token %s",
			v.work.steps, v.work.pod, v.now.Sub(v.work.at).Round(time.Second), v.work.token)
	}
	fault := v.fault
	if fault == "" {
		fault = "none yet: press a, p or n"
	}
	return []line{coordinator, {application, plain}, {"Last fault   " + fault, plain}}
}

func (v view) row(r row) line {
	note := r.note()
	if v.isolated != "" && v.nodes[r.Pod] == v.isolated {
		note = "its node is isolated"
	}
	styles := map[string]style{"Coordinator": green, "Crashed": red, "Unknown": yellow}
	text := fmt.Sprintf("%-12s %8d   %-12s %-10s %s", r.Pod, r.Priority, r.Status, v.nodes[r.Pod], note)
	return line{text, styles[r.Status]}
}
