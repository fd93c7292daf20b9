package agentcluster

import (
	"os"
	"path/filepath"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// authority is the file of the CA. No agent has this name.
const authority = "authority.pem"

// writeCertificates makes a CA, and for each name NAME.pem and NAME-key.pem,
// which say who it is.
func writeCertificates(folder, group string, names []string) error {
	const valid = 24 * time.Hour
	ca, own, err := identity.NewAuthority("troupe", valid)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, authority), own.Cert, 0o600); err != nil {
		return err
	}
	for _, name := range names {
		pair, err := ca.Issue(identity.Names{{Domain: "default", Group: group, Member: name}}, valid)
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
