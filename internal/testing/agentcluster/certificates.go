package agentcluster

import (
	"os"
	"path/filepath"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// caFile is the CA certificate. No agent has this name.
const caFile = "ca-certificate.pem"

// writeCertificates creates a CA, and for each name a certificate NAME.pem for all groups,
// with its key NAME-key.pem.
func writeCertificates(folder string, groups, names []string) error {
	const valid = 24 * time.Hour
	ca, own, err := identity.NewCA("agentcluster", valid)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, caFile), own.Cert, 0o600); err != nil {
		return err
	}
	for _, name := range names {
		var subjects identity.Names
		for _, group := range groups {
			subjects = append(subjects, identity.Name{Domain: "default", Group: group, Member: name})
		}
		pair, err := ca.Issue(subjects, valid)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, name+".pem"), pair.Cert, 0o600); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, name+"-key.pem"), pair.Key, 0o600); err != nil {
			return err
		}
	}
	return nil
}
