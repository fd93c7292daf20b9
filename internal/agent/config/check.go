package config

import (
	"fmt"
	"os"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// CheckFiles checks the files that the configuration refers to. It returns Errors
// if an agent could not start with them.
func (c *Config) CheckFiles() error {
	p := &parser{file: c.file}
	if c.TLS.Insecure {
		return nil
	}
	line := max(1, c.lines[""].at("tls"))
	for _, path := range []string{c.TLS.CertFile, c.TLS.KeyFile, c.TLS.CAFile} {
		if _, err := os.Stat(path); err != nil {
			p.errorf(line, "tls: %s", err)
		}
	}
	if err := p.err(); err != nil {
		return err
	}
	files, err := identity.Open(c.IdentityPaths(), nil)
	if err != nil {
		p.errorf(line, "tls: %s", err)
		return p.err()
	}
	names := files.Names()
	for i := range c.Groups {
		g := &c.Groups[i]
		if name := (identity.Name{Domain: c.Domain, Group: g.Name, Member: c.Self}); !names.Has(name) {
			p.errorf(c.lines[g.Name].at("name"), "the certificate in %s must include the name %s, got %s",
				c.TLS.CertFile, name, shortList(names))
		}
	}
	return p.err()
}

// IdentityPaths returns the paths of the certificate files.
func (c *Config) IdentityPaths() identity.Paths {
	return identity.Paths{Cert: c.TLS.CertFile, Key: c.TLS.KeyFile, CA: c.TLS.CAFile}
}

func shortList(names identity.Names) string {
	const most = 3
	if len(names) <= most {
		return names.String()
	}
	return fmt.Sprintf("%s and %d more", names[:most], len(names)-most)
}
