package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxFile is the maximum size of a file or document in bytes. No valid configuration
// comes near it.
const MaxFile = 1 << 20

// Load reads and parses the file of an agent. It doesn't read the files that the
// configuration refers to: see CheckFiles.
func Load(path string) (*Config, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read configuration: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read configuration: %w", err)
	}
	return Parse(path, data)
}

// Parse parses data, the content of the file at path, or returns Errors. Relative
// paths in data are relative to the directory of that file.
func Parse(path string, data []byte) (*Config, error) {
	p := &parser{file: path}
	c := &Config{file: path, lines: map[string]keyLines{}}
	if root := p.yamlDocument(data); root != nil {
		p.readAgent(c, root)
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// yamlDocument returns the root of the only YAML document in data, or nil if data
// isn't a valid document.
func (p *parser) yamlDocument(data []byte) *yaml.Node {
	if len(data) > MaxFile {
		p.errorf(0, "must have at most %d bytes", MaxFile)
		return nil
	}
	if at := invalidText(data); at >= 0 {
		p.errorf(1+bytes.Count(data[:at], []byte("\n")), "must be UTF-8 text without control characters")
		return nil
	}
	what, needs := "the file", "self, listen, tls and groups"
	if p.fromOperator {
		what, needs = "the document", "uid, generation, revision and group"
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	switch err := decoder.Decode(&first); {
	case errors.Is(err, io.EOF):
		p.errorf(1, "%s must have %s, got an empty file", what, needs)
		return nil
	case err != nil:
		p.syntaxError(err)
		return nil
	}
	switch err := decoder.Decode(&second); {
	case err == nil:
		p.errorf(second.Line, "must have one YAML document, got a second one")
		return nil
	case !errors.Is(err, io.EOF):
		p.syntaxError(err)
		return nil
	}
	root := first.Content[0]
	p.checkPlain(root)
	if len(p.errors) > 0 {
		return nil
	}
	return root
}

// invalidText returns the offset of the first byte of data that isn't text, or -1. The
// YAML library would refuse it without its position.
func invalidText(data []byte) int {
	for i := 0; i < len(data); {
		r, width := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && width == 1 || unicode.IsControl(r) && r != '\t' && r != '\n' && r != '\r' {
			return i
		}
		i += width
	}
	return -1
}

var (
	yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)
	// zeroBasedLine matches the errors whose lines the library counts from 0.
	zeroBasedLine = regexp.MustCompile(`^did not find expected ('-' indicator|key|',' or|node content|<)|^found (undefined|duplicate) `)
)

// syntaxError records an error of the YAML library.
func (p *parser) syntaxError(err error) {
	text := strings.ReplaceAll(err.Error(), "\n", " ")
	line := 1 // The library omits the line if it is the first one.
	if found := yamlError.FindStringSubmatch(text); found != nil {
		text = found[2]
		if n, err := strconv.Atoi(found[1]); err == nil {
			line = n
			if zeroBasedLine.MatchString(text) {
				line++
			}
		}
	}
	p.errorf(line, "invalid YAML: %s", text)
}

// checkPlain refuses aliases and tags: with them, a value could be defined elsewhere
// than where it is used, or have another type than it seems to have.
func (p *parser) checkPlain(n *yaml.Node) {
	switch {
	case n.Kind == yaml.AliasNode:
		p.errorf(n.Line, "alias *%s is not supported: write out the value", truncate(n.Value))
		return
	case n.Anchor != "":
		p.errorf(n.Line, "anchor &%s is not supported: remove it", truncate(n.Anchor))
	case n.Style&yaml.TaggedStyle != 0:
		p.errorf(n.Line, "tag %s is not supported: remove it", truncate(n.Tag))
	}
	for _, child := range n.Content {
		p.checkPlain(child)
	}
}
