package config

import (
	"path/filepath"

	"go.yaml.in/yaml/v3"
)

const (
	defaultDomain = "default"
	defaultAPI    = "127.0.0.1:7374"
	maxGroups     = 100
)

// readAgent reads the file of an agent.
func (p *parser) readAgent(c *Config, root *yaml.Node) {
	c.Domain, c.API, c.State = defaultDomain, defaultAPI, c.file+".state"
	book := &addressBook{}
	at := p.mapping("the file", root,
		field{key: "self", read: p.text(&c.Self, CheckMemberName), required: true},
		field{key: "domain", read: p.text(&c.Domain, CheckGroupName)},
		field{key: "api", read: p.text(&c.API, CheckAPI)},
		field{key: "apiUIDs", read: p.list(maxUIDs, p.readUID(c))},
		field{key: "exposeAPI", read: p.boolean(&c.ExposeAPI)},
		field{key: "listen", read: p.text(&c.Listen, checkAddress), required: true},
		field{key: "state", read: p.text(&c.State, anyText)},
		field{key: "tls", required: true, read: func(key string, n *yaml.Node) { p.readTLS(c, key, n) }},
		field{key: "groups", required: true, read: p.list(maxGroups, func(_ string, n *yaml.Node) { p.readGroup(c, book, n) })},
	)
	c.lines[""] = at
	if at.has("state") {
		c.State = c.resolve(c.State)
	}
	if at.has("groups") && len(c.Groups) == 0 && len(p.errors) == 0 {
		p.errorf(at.at("groups"), "groups must contain at least one group")
	}
	p.checkLocalAPI(c, at)
	p.checkAddresses(c, at, book)
}

// resolve resolves a path relative to the directory of the configuration file.
func (c *Config) resolve(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(c.file), path)
}

func (p *parser) readTLS(c *Config, key string, n *yaml.Node) {
	t := &c.TLS
	at := p.mapping(key, n,
		field{key: "certFile", read: p.text(&t.CertFile, anyText)},
		field{key: "keyFile", read: p.text(&t.KeyFile, anyText)},
		field{key: "caFile", read: p.text(&t.CAFile, anyText)},
		field{key: "insecure", read: p.boolean(&t.Insecure)},
	)
	files := []struct {
		key  string
		path *string
	}{{"certFile", &t.CertFile}, {"keyFile", &t.KeyFile}, {"caFile", &t.CAFile}}
	given := 0
	for _, file := range files {
		if at.has(file.key) {
			given++
			*file.path = c.resolve(*file.path)
		}
	}
	switch {
	case t.Insecure && given > 0:
		p.errorf(at.at("insecure"), "insecure: true and certificate files are mutually exclusive: remove one of them")
	case !t.Insecure && given == 0 && n.Kind == yaml.MappingNode:
		p.errorf(n.Line, "tls must have certFile, keyFile and caFile; or insecure: true, if all addresses are loopback addresses")
	case !t.Insecure && given > 0:
		for _, file := range files {
			if !at.has(file.key) {
				p.errorf(n.Line, "tls lacks %s", file.key)
			}
		}
	}
}
