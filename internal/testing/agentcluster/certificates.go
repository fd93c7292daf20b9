package agentcluster

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// caFile is the CA certificate. No agent has this name.
const caFile = "ca-certificate.pem"

// longValidity is that of the CA, and of certificates that don't expire during a test.
const longValidity = 24 * time.Hour

// writeCertificates creates a CA, and a certificate for each agent.
func (t *Cluster) writeCertificates() error {
	ca, own, err := identity.NewCA("agentcluster", longValidity)
	if err != nil {
		return err
	}
	t.ca = ca
	if err := os.WriteFile(filepath.Join(t.options.Folder, caFile), own.Cert, 0o600); err != nil {
		return err
	}
	for _, name := range t.Names() {
		if err := t.Certify(name, longValidity); err != nil {
			return err
		}
	}
	return nil
}

// Certify replaces the certificate of an agent, NAME.pem for all groups with its key NAME-key.pem. Connections keep the
// one with which they began.
func (t *Cluster) Certify(name string, validity time.Duration) error {
	var subjects identity.Names
	for _, group := range t.Groups() {
		subjects = append(subjects, identity.Name{Domain: "default", Group: group, Member: name})
	}
	pair, err := t.ca.Issue(subjects, validity)
	if err != nil {
		return err
	}
	path := filepath.Join(t.options.Folder, name)
	return errors.Join(os.WriteFile(path+"-key.pem", pair.Key, 0o600), os.WriteFile(path+".pem", pair.Cert, 0o600))
}
