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

// MaxFile is far above what an agent of any size needs.
const MaxFile = 1 << 20

// Load reads the file of an agent. It looks at no other file: see CheckFiles.
func Load(path string) (*Config, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return Parse(path, data)
}

// Parse understands data, which came from the file at path, or returns
// Errors. Relative paths in it start at the folder of the file.
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

// document is the one document of the file, or nil if it is none that could be
// read on.
func (p *parser) yamlDocument(data []byte) *yaml.Node {
	if len(data) > MaxFile {
		p.errorf(0, "the file is longer than %d bytes: this is no agent's configuration", MaxFile)
		return nil
	}
	if at := invalidText(data); at >= 0 {
		p.errorf(1+bytes.Count(data[:at], []byte("\n")), "a character here is no text in UTF-8")
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
		p.errorf(1, "%s is empty: it needs %s", what, needs)
		return nil
	case err != nil:
		p.syntaxError(err)
		return nil
	}
	switch err := decoder.Decode(&second); {
	case err == nil:
		p.errorf(second.Line, "a second document begins here: write one agent to a file")
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

// unreadable is where data isn't text, or -1. The parser would refuse it, too,
// but wouldn't say where.
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
	// zeroBasedLine are those complaints whose lines the library counts from 0.
	zeroBasedLine = regexp.MustCompile(`^did not find expected ('-' indicator|key|',' or|node content|<)|^found (undefined|duplicate) `)
)

// malformed complains in our form about what isn't YAML at all.
func (p *parser) syntaxError(err error) {
	text := strings.ReplaceAll(err.Error(), "\n", " ")
	line := 1 // which the library doesn't mention
	if found := yamlError.FindStringSubmatch(text); found != nil {
		text = found[2]
		if n, err := strconv.Atoi(found[1]); err == nil {
			line = n
			if zeroBasedLine.MatchString(text) {
				line++
			}
		}
	}
	p.errorf(line, "this is no YAML: %s", text)
}

// plain refuses what would let a value stand elsewhere than where it is used, or
// be read otherwise than it looks.
func (p *parser) checkPlain(n *yaml.Node) {
	switch {
	case n.Kind == yaml.AliasNode:
		p.errorf(n.Line, "the alias *%s is not understood here: write out what it stands for", truncate(n.Value))
		return
	case n.Anchor != "":
		p.errorf(n.Line, "the anchor &%s is not understood here: leave it out", truncate(n.Anchor))
	case n.Style&yaml.TaggedStyle != 0:
		p.errorf(n.Line, "the tag %s is not understood here: leave it out", truncate(n.Tag))
	}
	for _, child := range n.Content {
		p.checkPlain(child)
	}
}
