package config

import (
	"fmt"
	"math"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// uid is what Kubernetes gives out, with some room. It is in the names of files.
var uidPattern = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9]{0,62}$`)

// ParseDocument understands a group that an operator has given out, a
// control.Document, or returns Errors. source is where it comes from.
//
// What it doesn't know in it, it passes over: the operator may be newer (ADR 9).
//
// The agent itself needn't be a member. Addresses aren't compared: they are those
// of pods, which come and go, and whoever answers at one shows who it is.
func ParseDocument(source string, data []byte) (*Group, error) {
	p := &parser{file: source, fromOperator: true}
	c := &Config{file: source, lines: map[string]keyLines{}}
	var from Provenance
	if root := p.yamlDocument(data); root != nil {
		p.mapping("the document", root,
			field{key: "uid", read: p.text(&from.UID, CheckUID), required: true},
			field{key: "generation", read: number(p, &from.Generation, 0, math.MaxInt64), required: true},
			field{key: "revision", read: number(p, &from.Revision, 1, math.MaxInt64), required: true},
			field{key: "group", required: true, read: func(_ string, n *yaml.Node) { p.readGroup(c, &addressBook{}, n) }},
		)
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	g := &c.Groups[0]
	g.Provenance = from
	return g, nil
}

// CheckUID says what is wrong with the UID of a group.
func CheckUID(text string) error {
	if !uidPattern.MatchString(text) {
		return fmt.Errorf("must be a UID such as 6f1d1c4e-6bd7-4b8c-9d0b-2c7c1e2f3a4b, not %q", truncate(text))
	}
	return nil
}

// NewProbe is the probe of an application that answers at a URL.
func NewProbe(url string) (*Probe, error) {
	if err := checkURL(url); err != nil {
		return nil, err
	}
	return defaultProbe(url), nil
}

// EnvironmentErrors are complaints about what a pod tells its agent.
func EnvironmentErrors(reasons ...string) error {
	p := &parser{file: "environment"}
	for _, reason := range reasons {
		p.errorf(0, "%s", reason)
	}
	return p.err()
}
