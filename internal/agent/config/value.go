package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// maxText bounds every text: paths and URLs are the longest.
const maxText = 2048

// lines say where the keys of a mapping stand.
type lines struct {
	own int
	of  map[string]int
}

// at is the line of a key, or of the mapping if that lacks it.
func (l lines) at(key string) int {
	if line, ok := l.of[key]; ok {
		return line
	}
	return l.own
}

func (l lines) has(key string) bool { return l.of[key] > 0 }

// reading takes the value of a key.
type reading func(key string, n *yaml.Node)

// field is a key that a mapping may have.
type field struct {
	key      string
	read     reading
	required bool
}

// mapping reads the keys of n, which is what.
func (p *page) mapping(what string, n *yaml.Node, fields ...field) lines {
	found := lines{own: n.Line, of: map[string]int{}}
	if n.Kind != yaml.MappingNode {
		p.complain(n.Line, "%s must be keys with values, not %s", what, shown(n))
		return found
	}
	var keys []string
	for _, f := range fields {
		keys = append(keys, f.key)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := slices.Index(keys, key.Value)
		switch {
		case p.given && key.Kind == yaml.ScalarNode && at < 0:
			// An operator that is newer than the agent says more than the agent knows.
		case key.Kind != yaml.ScalarNode || at < 0:
			p.complain(key.Line, "%s has no key %s: use %s", what, shown(key), oneOf(keys))
		case found.has(key.Value):
			p.complain(key.Line, "%s stands here twice: it is in line %d already", key.Value, found.at(key.Value))
		default:
			found.of[key.Value] = key.Line
			fields[at].read(key.Value, value)
		}
	}
	for _, f := range fields {
		if f.required && !found.has(f.key) {
			p.complain(n.Line, "%s lacks %s", what, f.key)
		}
	}
	return found
}

// list reads up to most values of n, one after the other.
func (p *page) list(most int, read reading) reading {
	return func(key string, n *yaml.Node) {
		switch {
		case n.Kind != yaml.SequenceNode:
			p.complain(n.Line, "%s must be a list, not %s", key, shown(n))
		case len(n.Content) > most:
			p.complain(n.Line, "%s has %d entries: %d at most are possible", key, len(n.Content), most)
		default:
			for _, entry := range n.Content {
				read(key, entry)
			}
		}
	}
}

// text reads a text that check has nothing against.
func (p *page) text(to *string, check func(string) error) reading {
	return func(key string, n *yaml.Node) {
		switch {
		case n.Kind == yaml.ScalarNode && n.ShortTag() != "!!str" && n.Value != "" && n.ShortTag() != "!!null":
			p.complain(n.Line, "%s must be text, not %s: put it in quotes", key, shown(n))
		case n.Kind != yaml.ScalarNode || n.Value == "" || n.ShortTag() != "!!str":
			p.complain(n.Line, "%s must be text, not %s", key, shown(n))
		case len(n.Value) > maxText:
			p.complain(n.Line, "%s is longer than %d bytes", key, maxText)
		default:
			if err := check(n.Value); err != nil {
				p.complain(n.Line, "%s %s", key, err)
				return
			}
			*to = n.Value
		}
	}
}

func anything(string) error { return nil }

// choice reads one of a few words.
func choice[T any](p *page, to *T, words []string, values []T) reading {
	return func(key string, n *yaml.Node) {
		at := slices.Index(words, n.Value)
		if n.Kind != yaml.ScalarNode || at < 0 {
			p.complain(n.Line, "%s must be %s, not %s", key, oneOf(words), shown(n))
			return
		}
		*to = values[at]
	}
}

// number reads a whole number, written in decimal digits and nothing else.
func number[T ~int | ~int64 | ~uint32 | ~uint64](p *page, to *T, least, most uint64) reading {
	return func(key string, n *yaml.Node) {
		value, err := strconv.ParseUint(n.Value, 10, 64)
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil || strconv.FormatUint(value, 10) != n.Value ||
			value < least || value > most {
			p.complain(n.Line, "%s must be a whole number from %d to %d, not %s", key, least, most, shown(n))
			return
		}
		*to = T(value)
	}
}

// span reads a number of units.
func (p *page) span(to *time.Duration, unit time.Duration, least, most uint64) reading {
	return func(key string, n *yaml.Node) {
		units := uint64(*to / unit)
		number(p, &units, least, most)(key, n)
		*to = time.Duration(units) * unit
	}
}

func (p *page) truth(to *bool) reading {
	return func(key string, n *yaml.Node) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
			p.complain(n.Line, "%s must be true or false, not %s", key, shown(n))
			return
		}
		*to = n.Value == "true" || n.Value == "True" || n.Value == "TRUE"
	}
}

// shown is what a complaint says about a value.
func shown(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.MappingNode:
		return "keys with values"
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str":
		return strconv.Quote(shortened(n.Value))
	case n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null":
		return shortened(n.Value)
	}
	return "nothing"
}

// shortened keeps a complaint on one line of a screen.
func shortened(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

func oneOf(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	last := len(words) - 1
	return fmt.Sprintf("%s or %s", strings.Join(words[:last], ", "), words[last])
}
