package election

import (
	"fmt"
	"strconv"
	"strings"
)

// Names returns the name of a process in descriptions.
type Names func(ID) string

// Numbers names each process by its number.
func Numbers(id ID) string { return strconv.FormatUint(uint64(id), 10) }

// Describe formats a message as one line, as transcripts and logs show it:
//
//	4 -> 9 ELECTION term 2 about 10
func (m Message) Describe() string { return m.DescribeWith(Numbers) }

// DescribeWith is Describe with other names of the processes.
func (m Message) DescribeWith(name Names) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s -> %s %s term %d", name(m.From), name(m.To), m.Kind, m.Term)
	if m.Subject != None && m.Subject != m.From {
		fmt.Fprintf(&b, " about %s", name(m.Subject))
	}
	if m.Origin != None {
		fmt.Fprintf(&b, " from %s, hop %d", name(m.Origin), m.Hops)
	}
	if len(m.List) > 0 {
		fmt.Fprintf(&b, " %s", name.List(m.List))
	}
	switch {
	case m.Hold.Held && m.Kind == Resigned:
		b.WriteString(" unused")
	case m.Hold.Held:
		b.WriteString(" held")
	}
	if m.Hold.Ineligible {
		b.WriteString(" ineligible")
	}
	if m.Hold.Ready {
		b.WriteString(" ready")
	}
	return b.String()
}

// List formats a list of processes.
func (name Names) List(ids []ID) string {
	texts := make([]string, 0, len(ids))
	for _, id := range ids {
		texts = append(texts, name(id))
	}
	return "[" + strings.Join(texts, " ") + "]"
}

// Describe formats an event as one line.
func (e Event) Describe() string { return e.DescribeWith(Numbers) }

// DescribeWith is Describe with other names of the processes.
func (e Event) DescribeWith(name Names) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", e.Kind)
	if e.Peer != None {
		fmt.Fprintf(&b, " %s", name(e.Peer))
	}
	fmt.Fprintf(&b, ", term %d", e.Term)
	if e.Token != 0 {
		fmt.Fprintf(&b, ", token %d", e.Token)
	}
	return b.String()
}

// Describe formats an input as one line.
func (in Input) Describe() string { return in.DescribeWith(Numbers) }

// DescribeWith is Describe with other names of the processes.
func (in Input) DescribeWith(name Names) string {
	switch in.Kind {
	case Receive, Undelivered:
		return in.Kind.String() + " " + in.Message.DescribeWith(name)
	case Adopt:
		if in.Roster == nil {
			return "adopt nothing"
		}
		return fmt.Sprintf("adopt version %d", in.Roster.Version)
	default:
	}
	if in.Peer == None {
		return in.Kind.String()
	}
	if in.Ineligible {
		return fmt.Sprintf("%s %s, ineligible", in.Kind, name(in.Peer))
	}
	return fmt.Sprintf("%s %s", in.Kind, name(in.Peer))
}
