package election

import (
	"fmt"
	"strings"
)

// Describe formats a message as one line, as transcripts and logs show it:
//
//	4 -> 9 ELECTION term 2 about 10
func (m Message) Describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d -> %d %s term %d", m.From, m.To, m.Kind, m.Term)
	if m.Subject != None && m.Subject != m.From {
		fmt.Fprintf(&b, " about %d", m.Subject)
	}
	if m.Origin != None {
		fmt.Fprintf(&b, " from %d, hop %d", m.Origin, m.Hops)
	}
	if len(m.List) > 0 {
		fmt.Fprintf(&b, " %d", m.List)
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

// Describe formats an event as one line.
func (e Event) Describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", e.Kind)
	if e.Peer != None {
		fmt.Fprintf(&b, " %d", e.Peer)
	}
	fmt.Fprintf(&b, ", term %d", e.Term)
	if e.Token != 0 {
		fmt.Fprintf(&b, ", token %d", e.Token)
	}
	return b.String()
}

// Describe formats an input as one line.
func (in Input) Describe() string {
	switch in.Kind {
	case Receive, Undelivered:
		return in.Kind.String() + " " + in.Message.Describe()
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
		return fmt.Sprintf("%s %d, ineligible", in.Kind, in.Peer)
	}
	return fmt.Sprintf("%s %d", in.Kind, in.Peer)
}
