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
	locks    locks
	fault    string // The last fault.
	failover string // What came of it.
	now      time.Time
}

// stallMax is the time without a new lock after which the view mentions it.
const stallMax = 2 * time.Second

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
	keys := "a kill coordinator's agent   p delete its pod   n " + wide + "   q quit"
	if len(keys) > columns {
		return "a agent  p pod  n " + narrow + "  q quit"
	}
	return keys
}

// lines renders the view for a terminal. The last line, with the keys, is always shown.
func (v view) lines(columns, rows int) []line {
	width := len(ledgerPod)
	for _, r := range v.status.Processes {
		width = max(width, len(r.Pod))
	}
	lines := v.head()
	lines = append(lines, line{}, v.row(width, "POD", "PRIORITY", "STATUS", "NODE", "NOTE", faint))
	for _, r := range v.status.Processes {
		lines = append(lines, v.member(width, r))
	}
	lines = append(lines, v.row(width, ledgerPod, "", "", v.nodes[ledgerPod], v.noteOf(ledgerPod, "checks the locks"), faint), line{})
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
	fault := v.fault
	if fault == "" {
		fault = "none yet: press a, p or n"
	}
	return []line{coordinator, v.lockLine(), {"Last fault   " + fault, plain}, {"Failover     " + v.failover, plain}}
}

// lockLine returns the line with the invariant of the lock service.
func (v view) lockLine() line {
	text, since := "Locks        "+v.locks.String(), func(at time.Time) time.Duration { return v.now.Sub(at).Round(time.Second) }
	switch {
	case v.locks.Violation != "":
		return line{text, red}
	case v.locks.Granted == 0:
		return line{"Locks        none granted yet", yellow}
	case v.now.Sub(v.locks.read) > stallMax:
		return line{fmt.Sprintf("%s; no response of the ledger for %s", text, since(v.locks.read)), yellow}
	case v.now.Sub(v.locks.grown) > stallMax:
		return line{fmt.Sprintf("%s; no new one for %s", text, since(v.locks.grown)), yellow}
	}
	return line{text, green}
}

func (v view) member(width int, r row) line {
	styles := map[string]style{"Coordinator": green, "Crashed": red, "Unknown": yellow}
	return v.row(width, r.Pod, fmt.Sprint(r.Priority), r.Status, v.nodes[r.Pod], v.noteOf(r.Pod, r.note()), styles[r.Status])
}

func (v view) noteOf(pod, note string) string {
	if v.isolated != "" && v.nodes[pod] == v.isolated {
		return "its node is isolated"
	}
	return note
}

func (view) row(width int, pod, priority, status, node, note string, style style) line {
	return line{fmt.Sprintf("%-*s  %8s  %-11s  %-8s  %s", width, pod, priority, status, node, note), style}
}
