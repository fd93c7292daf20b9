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

// agent reads the whole file.
func (p *parser) readAgent(c *Config, root *yaml.Node) {
	c.Domain, c.API, c.State = defaultDomain, defaultAPI, c.file+".state"
	book := &addressBook{}
	at := p.mapping("the file", root,
		field{key: "self", read: p.text(&c.Self, CheckMember), required: true},
		field{key: "domain", read: p.text(&c.Domain, CheckGroup)},
		field{key: "api", read: p.text(&c.API, checkAddress)},
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
		p.errorf(at.at("groups"), "groups is empty: an agent takes part in one at least")
	}
	p.checkLocalAPI(c, at)
	p.checkAddresses(c, at, book)
}

// path is where a file of the configuration is.
func (c *Config) resolve(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(c.file), name)
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
		p.errorf(at.at("insecure"), "insecure: true and certificate files exclude each other: leave out one or the other")
	case !t.Insecure && given == 0 && n.Kind == yaml.MappingNode:
		p.errorf(n.Line, "tls needs certFile, keyFile and caFile; or, between loopback addresses, insecure: true")
	case !t.Insecure && given > 0:
		for _, file := range files {
			if !at.has(file.key) {
				p.errorf(n.Line, "tls lacks %s", file.key)
			}
		}
	}
}

// checkLocalAPI checks where the application is served. Whoever reaches the API can
// have the coordinator step down.
func (p *parser) checkLocalAPI(c *Config, at keyLines) {
	api, err := parseEndpoint(c.API)
	if err != nil {
		return
	}
	if !api.loopback() && !c.ExposeAPI {
		p.errorf(at.at("api"), "api must be a loopback address such as %s, not %q: write exposeAPI: true "+
			"if everybody who reaches it may have the coordinator step down", defaultAPI, c.API)
	}
	if listen, err := parseEndpoint(c.Listen); err == nil && api.overlaps(listen) {
		p.errorf(at.at("listen"), "listen (%s) and api (%s) need different ports", c.Listen, c.API)
	}
}
