package config

import (
	"fmt"
	"math"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// uidPattern matches the UIDs of Kubernetes, and somewhat more. A UID is part of
// file names.
var uidPattern = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9]{0,62}$`)

// ParseDocument parses a document that the operator publishes, a control.Document,
// or returns Errors. source names where the document comes from.
//
// ParseDocument ignores unknown keys: the operator may be newer than the agent (ADR 9).
//
// The agent needn't be a member of the group. ParseDocument doesn't compare addresses
// with each other: pods come and go, so two members may have had the same address, and
// a peer proves its name in the TLS handshake.
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

// CheckUID returns an error if text isn't a valid UID of a group.
func CheckUID(text string) error {
	if !uidPattern.MatchString(text) {
		return fmt.Errorf("must be a UID such as 6f1d1c4e-6bd7-4b8c-9d0b-2c7c1e2f3a4b, got %q", truncate(text))
	}
	return nil
}

// NewProbe returns a probe of the application at a URL, with default timing.
func NewProbe(url string) (*Probe, error) {
	if err := checkURL(url); err != nil {
		return nil, err
	}
	return defaultProbe(url), nil
}

// EnvironmentErrors returns Errors in the environment variables of a pod's agent, or
// nil if there are no reasons.
func EnvironmentErrors(reasons ...string) error {
	p := &parser{file: "environment"}
	for _, reason := range reasons {
		p.errorf(0, "%s", reason)
	}
	return p.err()
}
