package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// maxText is the maximum length of a string. Paths and URLs are the longest ones.
const maxText = 2048

// keyLines has the lines of the keys of a mapping.
type keyLines struct {
	line int
	keys map[string]int
}

// at returns the line of a key, or the line of the mapping if the key is missing.
func (l keyLines) at(key string) int {
	if line, ok := l.keys[key]; ok {
		return line
	}
	return l.line
}

func (l keyLines) has(key string) bool { return l.keys[key] > 0 }

// valueReader reads the value of a key.
type valueReader func(key string, n *yaml.Node)

// field is a key that a mapping may have.
type field struct {
	key      string
	read     valueReader
	required bool
}

// mapping reads the keys of n. Errors refer to n as what.
func (p *parser) mapping(what string, n *yaml.Node, fields ...field) keyLines {
	found := keyLines{line: n.Line, keys: map[string]int{}}
	if n.Kind != yaml.MappingNode {
		p.errorf(n.Line, "%s must be a mapping, got %s", what, describe(n))
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
			// An operator that is newer than the agent may send keys that the agent doesn't know.
		case key.Kind != yaml.ScalarNode || at < 0:
			p.errorf(key.Line, "%s cannot have the key %s: use %s", what, describe(key), oneOf(keys))
		case found.has(key.Value):
			p.errorf(key.Line, "%s is already set in line %d", key.Value, found.at(key.Value))
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

// list reads a list of at most so many values.
func (p *parser) list(most int, read valueReader) valueReader {
	return func(key string, n *yaml.Node) {
		switch {
		case n.Kind != yaml.SequenceNode:
			p.errorf(n.Line, "%s must be a list, got %s", key, describe(n))
		case len(n.Content) > most:
			p.errorf(n.Line, "%s must have at most %d entries, got %d", key, most, len(n.Content))
		default:
			for _, entry := range n.Content {
				read(key, entry)
			}
		}
	}
}

// text reads a string that check accepts.
func (p *parser) text(to *string, check func(string) error) valueReader {
	return func(key string, n *yaml.Node) {
		switch {
		case n.Kind == yaml.ScalarNode && n.ShortTag() != "!!str" && n.Value != "" && n.ShortTag() != "!!null":
			p.errorf(n.Line, "%s must be a string, got %s: put it in quotes", key, describe(n))
		case n.Kind != yaml.ScalarNode || n.Value == "" || n.ShortTag() != "!!str":
			p.errorf(n.Line, "%s must be a string, got %s", key, describe(n))
		case len(n.Value) > maxText:
			p.errorf(n.Line, "%s must have at most %d bytes, got %d", key, maxText, len(n.Value))
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

// enum reads one of several words, each of which stands for a value.
func enum[T any](p *parser, to *T, words []string, values []T) valueReader {
	return func(key string, n *yaml.Node) {
		at := slices.Index(words, n.Value)
		if n.Kind != yaml.ScalarNode || at < 0 {
			p.errorf(n.Line, "%s must be %s, got %s", key, oneOf(words), describe(n))
			return
		}
		*to = values[at]
	}
}

// number reads an integer in decimal digits.
func number[T ~int | ~int64 | ~uint32 | ~uint64](p *parser, to *T, least, most uint64) valueReader {
	return func(key string, n *yaml.Node) {
		value, err := strconv.ParseUint(n.Value, 10, 64)
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil || strconv.FormatUint(value, 10) != n.Value ||
			value < least || value > most {
			p.errorf(n.Line, "%s must be an integer from %d to %d, got %s", key, least, most, describe(n))
			return
		}
		*to = T(value)
	}
}

// duration reads an integer number of units.
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
			p.errorf(n.Line, "%s must be true or false, got %s", key, describe(n))
			return
		}
		*to = n.Value == "true" || n.Value == "True" || n.Value == "TRUE"
	}
}

// describe describes a value in an error message.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str":
		return strconv.Quote(truncate(n.Value))
	case n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null":
		return truncate(n.Value)
	}
	return "no value"
}

// truncate shortens s so that an error message fits on one line of a terminal.
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
