package transport

import (
	"crypto/tls"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// Certificates are the Security of agents that have them.
type Certificates struct {
	Files  *identity.Files
	Domain string
}

// Server is for Security.
func (c Certificates) Server() *tls.Config { return c.Files.Server() }

// Client is for Security: who is called is checked against its names in Members.
func (c Certificates) Client() *tls.Config { return c.Files.Client() }

// Members are the names in the peer's certificate, of this domain.
func (c Certificates) Members(state tls.ConnectionState) (map[string]string, error) {
	names, err := identity.PeerNames(state)
	if err != nil {
		return nil, err
	}
	members := map[string]string{}
	for _, name := range names {
		if name.Domain == c.Domain {
			members[name.Group] = name.Member
		}
	}
	return members, nil
}
