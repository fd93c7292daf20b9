package watch

import (
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/describe"
	"github.com/conclave-dev/conclave/internal/plugin/output"
)

// view is the live view of a group on a terminal: it has its present state and its latest changes.
type view struct {
	changes describe.ChangeLog
	group   *v1.ElectionGroup
	// latest are the latest changes, in the order in which they happened.
	latest []string
}

// changesShown is the number of changes below the table.
const changesShown = 8

// set sets the present state of the group, or nil if it doesn't exist.
func (v *view) set(g *v1.ElectionGroup, now time.Time) {
	for _, text := range v.changes.Append(g, now) {
		v.latest = append(v.latest, now.Format("15:04:05.000")+"  "+text)
	}
	v.latest = v.latest[max(0, len(v.latest)-changesShown):]
	v.group = g
}

// render returns the status, some notes, and the latest changes. If a terminal is too small for them, the oldest tenures are left
// out first, and then the oldest changes. The present time is that of the cluster.
func (v *view) render(now time.Time, width, height int, notes ...string) []string {
	var text strings.Builder
	tenures := 0
	if v.group != nil {
		describe.Status(&text, v.group, now)
		tenures = len(v.group.Status.History)
	}
	status, latest := wrap(strings.Split(text.String(), "\n"), width), wrap(v.latest, width)
	var noted []string
	for _, note := range notes {
		noted = append(append(noted, wrap([]string{note}, width)...), "")
	}
	excess := len(status) + len(noted) + len(latest) - height
	if tenures > 0 && excess > 0 {
		cut := excess
		if cut >= tenures {
			cut = tenures + 2 // the header, and the empty line above
		}
		status = append(status[:len(status)-1-cut], "") // Its end is the history and an empty line.
		excess -= cut
	}
	if excess > 0 && len(latest) > 0 {
		latest = latest[min(excess, len(latest)-1):]
	}
	return slices.Concat(status, noted, latest)
}

// show shows on a terminal what lines returns for its size, instead of the previous lines.
func show(terminal *os.File, lines func(width, height int) []string) {
	width, height, err := term.GetSize(int(terminal.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	// A failed write to the terminal cannot be reported.
	_, _ = terminal.WriteString(frame(lines(width, height), width, height))
}

// frame returns what a terminal needs to show lines instead of the previous ones. It overwrites them line by line, which
// avoids flicker. Lines are fitted to the size of the terminal.
func frame(lines []string, width, height int) string {
	var text strings.Builder
	text.WriteString("\x1b[H")
	for i, line := range crop(lines, width, height) {
		if i > 0 {
			text.WriteString("\r\n")
		}
		text.WriteString(line + "\x1b[K")
	}
	text.WriteString("\x1b[J")
	return text.String()
}

// wrap breaks sentences that are too long for a terminal between words. Rows of tables have several gaps between columns, and stay lines.
func wrap(lines []string, width int) (wrapped []string) {
	for _, line := range lines {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		for strings.Count(line[len(indent):], "  ") < 2 && utf8.RuneCountInString(line) > width {
			at := strings.LastIndex(string([]rune(line)[:width+1]), " ")
			if at <= len(indent) {
				break
			}
			wrapped, line = append(wrapped, line[:at]), indent+line[at+1:]
		}
		wrapped = append(wrapped, line)
	}
	return wrapped
}

// crop fits lines into a terminal. It removes lines from the middle, which are the
// last rows of the table: the coordinator is at the top and the latest changes are
// at the bottom.
func crop(lines []string, width, height int) []string {
	if excess := len(lines) - height; excess > 0 {
		bottom := min(len(lines)/2, height/2)
		top := height - bottom
		lines = append(append([]string{}, lines[:top]...), lines[top+excess:]...)
	}
	cropped := make([]string, len(lines))
	for i, line := range lines {
		line = output.WithoutControls(line)
		if letters := []rune(line); len(letters) > width {
			line = string(letters[:width])
		}
		cropped[i] = line
	}
	return cropped
}
