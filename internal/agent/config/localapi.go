package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	unixScheme = "unix://"
	// maxSocketPath is the maximum length of the path of a Unix socket in Linux.
	maxSocketPath = 107
	// maxUIDs is more than the users of an application.
	maxUIDs = 64
	maxUID  = 1<<32 - 2
)

// SocketPath returns the path of the Unix socket that an address of the local API names,
// if it names one.
func SocketPath(api string) (path string, ok bool) { return strings.CutPrefix(api, unixScheme) }

// CheckAPI checks the address of the local API.
func CheckAPI(api string) error {
	path, ok := SocketPath(api)
	err := checkAddress(api)
	switch {
	case !ok && (err == nil || !strings.HasPrefix(api, "unix:")): // unix may also be the name of a host.
		return err
	case !ok || !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/":
		return fmt.Errorf("must have an absolute path after unix://, as in unix:///run/conclave/agent.sock, got %q", truncate(api))
	case len(path) > maxSocketPath:
		return fmt.Errorf("must have a path of at most %d bytes, got %d", maxSocketPath, len(path))
	case strings.ContainsRune(path, 0):
		return errors.New("must have no zero byte")
	}
	return nil
}

// readUID reads a user of the local API.
func (p *parser) readUID(c *Config) valueReader {
	return func(key string, n *yaml.Node) {
		uid := uint32(0)
		number(p, &uid, 0, maxUID)(key, n)
		c.APIUIDs = append(c.APIUIDs, uid)
	}
}

// checkLocalAPI checks the address of the local API. Every client that reaches the
// API can make the coordinator step down.
func (p *parser) checkLocalAPI(c *Config, at keyLines) {
	if _, ok := SocketPath(c.API); ok {
		return
	}
	if at.has("apiUIDs") {
		p.errorf(at.at("apiUIDs"), "apiUIDs requires api to be a Unix socket, as in unix:///run/conclave/agent.sock, got %q", c.API)
	}
	api, err := parseEndpoint(c.API)
	if err != nil {
		return
	}
	if !api.loopback() && !c.ExposeAPI {
		p.errorf(at.at("api"), "api must be a loopback address such as %s, got %q: set exposeAPI: true "+
			"to allow every client that reaches it to make the coordinator step down", defaultAPI, c.API)
	}
	if listen, err := parseEndpoint(c.Listen); err == nil && api.overlaps(listen) {
		p.errorf(at.at("listen"), "listen (%s) and api (%s) must have different ports", c.Listen, c.API)
	}
}
