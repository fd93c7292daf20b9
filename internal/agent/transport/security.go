package transport

import (
	"crypto/tls"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// Certificates implements Security with the certificate files of an agent.
type Certificates struct {
	Files  *identity.Files
	Domain string
}

// Server implements Security.
func (c Certificates) Server() *tls.Config { return c.Files.Server() }

// Client implements Security. The handshake compares the name of the peer with
// Members, so no name is required here.
func (c Certificates) Client() *tls.Config { return c.Files.Client() }

// Members returns the names of this domain in the peer's certificate.
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
