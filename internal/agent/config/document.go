package config

import (
	"fmt"
	"regexp"

	kjson "sigs.k8s.io/json"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// uidPattern matches the UIDs of Kubernetes, and somewhat more. A UID is part of file names.
var uidPattern = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9]{0,62}$`)

// ParseDocument parses a document that the operator publishes, a control.Document in JSON, or returns Errors. source
// names where the document comes from.
//
// ParseDocument ignores unknown fields: the operator may be newer than the agent (ADR 9).
//
// The agent needn't be a member of the group. ParseDocument doesn't compare addresses with each other: pods come and
// go, so two members may have had the same address, and a peer proves its name in the TLS handshake.
func ParseDocument(source string, data []byte) (*Group, error) {
	c := &checker{source: source}
	if len(data) > MaxFile {
		c.errorf("", "must have at most %d bytes", MaxFile)
		return nil, c.err()
	}
	var d control.Document
	if !c.decode(data, &d, kjson.DisallowDuplicateFields) {
		return nil, c.err()
	}
	c.text("uid", d.UID, CheckUID)
	if d.Generation < 0 {
		c.errorf("generation", "must be 0 or more, got %d", d.Generation)
	}
	if d.Revision < 1 {
		c.errorf("revision", "must be 1 or more, got %d", d.Revision)
	}
	g := c.group("group", &d.Group)
	if err := c.err(); err != nil {
		return nil, err
	}
	g.Provenance = Provenance{UID: d.UID, Generation: d.Generation, Revision: d.Revision}
	return &g, nil
}

// CheckUID returns an error if text isn't a valid UID of a group.
func CheckUID(text string) error {
	if !uidPattern.MatchString(text) {
		return fmt.Errorf("must be a UID such as 6f1d1c4e-6bd7-4b8c-9d0b-2c7c1e2f3a4b, got %q", truncate(text, maxShown))
	}
	return nil
}
