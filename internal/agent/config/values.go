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
type keyLines struct {
	line int
	keys map[string]int
}

// at is the line of a key, or of the mapping if that lacks it.
func (l keyLines) at(key string) int {
	if line, ok := l.keys[key]; ok {
		return line
	}
	return l.line
}

func (l keyLines) has(key string) bool { return l.keys[key] > 0 }

// reading takes the value of a key.
type valueReader func(key string, n *yaml.Node)

// field is a key that a mapping may have.
type field struct {
	key      string
	read     valueReader
	required bool
}

// mapping reads the keys of n, which is what.
func (p *parser) mapping(what string, n *yaml.Node, fields ...field) keyLines {
	found := keyLines{line: n.Line, keys: map[string]int{}}
	if n.Kind != yaml.MappingNode {
		p.errorf(n.Line, "%s must be keys with values, not %s", what, describe(n))
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
		case p.fromOperator && key.Kind == yaml.ScalarNode && at < 0:
			// An operator that is newer than the agent says more than the agent knows.
		case key.Kind != yaml.ScalarNode || at < 0:
			p.errorf(key.Line, "%s has no key %s: use %s", what, describe(key), oneOf(keys))
		case found.has(key.Value):
			p.errorf(key.Line, "%s stands here twice: it is in line %d already", key.Value, found.at(key.Value))
		default:
			found.keys[key.Value] = key.Line
			fields[at].read(key.Value, value)
		}
	}
	for _, f := range fields {
		if f.required && !found.has(f.key) {
			p.errorf(n.Line, "%s lacks %s", what, f.key)
		}
	}
	return found
}

// list reads up to most values of n, one after the other.
func (p *parser) list(most int, read valueReader) valueReader {
	return func(key string, n *yaml.Node) {
		switch {
		case n.Kind != yaml.SequenceNode:
			p.errorf(n.Line, "%s must be a list, not %s", key, describe(n))
		case len(n.Content) > most:
			p.errorf(n.Line, "%s has %d entries: %d at most are possible", key, len(n.Content), most)
		default:
			for _, entry := range n.Content {
				read(key, entry)
			}
		}
	}
}

// text reads a text that check has nothing against.
func (p *parser) text(to *string, check func(string) error) valueReader {
	return func(key string, n *yaml.Node) {
		switch {
		case n.Kind == yaml.ScalarNode && n.ShortTag() != "!!str" && n.Value != "" && n.ShortTag() != "!!null":
			p.errorf(n.Line, "%s must be text, not %s: put it in quotes", key, describe(n))
		case n.Kind != yaml.ScalarNode || n.Value == "" || n.ShortTag() != "!!str":
			p.errorf(n.Line, "%s must be text, not %s", key, describe(n))
		case len(n.Value) > maxText:
			p.errorf(n.Line, "%s is longer than %d bytes", key, maxText)
		default:
			if err := check(n.Value); err != nil {
				p.errorf(n.Line, "%s %s", key, err)
				return
			}
			*to = n.Value
		}
	}
}

func anyText(string) error { return nil }

// choice reads one of a few words.
func enum[T any](p *parser, to *T, words []string, values []T) valueReader {
	return func(key string, n *yaml.Node) {
		at := slices.Index(words, n.Value)
		if n.Kind != yaml.ScalarNode || at < 0 {
			p.errorf(n.Line, "%s must be %s, not %s", key, oneOf(words), describe(n))
			return
		}
		*to = values[at]
	}
}

// number reads a whole number, written in decimal digits and nothing else.
func number[T ~int | ~int64 | ~uint32 | ~uint64](p *parser, to *T, least, most uint64) valueReader {
	return func(key string, n *yaml.Node) {
		value, err := strconv.ParseUint(n.Value, 10, 64)
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil || strconv.FormatUint(value, 10) != n.Value ||
			value < least || value > most {
			p.errorf(n.Line, "%s must be a whole number from %d to %d, not %s", key, least, most, describe(n))
			return
		}
		*to = T(value)
	}
}

// span reads a number of units.
func (p *parser) duration(to *time.Duration, unit time.Duration, least, most uint64) valueReader {
	return func(key string, n *yaml.Node) {
		units := uint64(*to / unit)
		number(p, &units, least, most)(key, n)
		*to = time.Duration(units) * unit
	}
}

func (p *parser) boolean(to *bool) valueReader {
	return func(key string, n *yaml.Node) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
			p.errorf(n.Line, "%s must be true or false, not %s", key, describe(n))
			return
		}
		*to = n.Value == "true" || n.Value == "True" || n.Value == "TRUE"
	}
}

// shown is what a complaint says about a value.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.MappingNode:
		return "keys with values"
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str":
		return strconv.Quote(truncate(n.Value))
	case n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null":
		return truncate(n.Value)
	}
	return "nothing"
}

// shortened keeps a complaint on one line of a screen.
func truncate(s string) string {
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
