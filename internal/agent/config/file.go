package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// File is an agent's configuration file. An agent without an operator needs an address, certificates and the local API
// besides its groups.
type File struct {
	Config

	Groups []control.Group `json:"groups"`
}

const (
	defaultDomain = "default"
	defaultAPI    = "127.0.0.1:7374"
	maxGroups     = 100
	// MaxFile is the maximum size of a file or document in bytes. No valid configuration comes near it.
	MaxFile = 1 << 20
)

// Load reads and parses the file of an agent. It doesn't read the files that the
// configuration refers to: see CheckFiles.
func Load(path string) (*Config, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read configuration: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read configuration: %w", err)
	}
	return Parse(path, data)
}

// Parse parses data, the content of the file at path, or returns Errors. Relative
// paths in data are relative to the directory of that file.
func Parse(path string, data []byte) (*Config, error) {
	c := &checker{source: path, inFile: true}
	f := &File{Config: Config{file: path}}
	text, err := toJSON(data)
	if err != nil {
		c.errorf("", "%s", truncate(err.Error(), maxLine))
	} else if c.decode(text, f) {
		c.priorities(text)
		c.file(f)
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	return &f.Config, nil
}

var (
	// head matches what may precede the document, and separator the begin of a second one, which the library would ignore.
	head      = regexp.MustCompile(`\A(?:[ \t]*(?:[#%].*)?\r?\n)*(?:---(?:\s|$))?`)
	separator = regexp.MustCompile(`(?m)^(?:---|\.\.\.)(?:\s|$)`)
	anchor    = regexp.MustCompile(`(?m)(?:^|[^!-~]|[\[{,:])(&[\w-])`)
)

// toJSON converts a YAML document to JSON. It refuses anchors: by aliases, a short file could become very long.
func toJSON(data []byte) ([]byte, error) {
	switch {
	case len(data) > MaxFile:
		return nil, fmt.Errorf("must have at most %d bytes", MaxFile)
	case separator.Match(data[len(head.Find(data)):]):
		return nil, errors.New("must have one YAML document, got a second one")
	case anchor.Match(data):
		return nil, fmt.Errorf("must not have an anchor, such as %s: write out the value", anchor.FindSubmatch(data)[1])
	}
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, errors.New(strings.Join(strings.Fields(err.Error()), " "))
	}
	return text, nil
}

// priorities refuses members without a priority: 0 would mean that they are never elected.
func (c *checker) priorities(text []byte) {
	type list []struct{ Priority *json.Number }
	var given struct {
		Groups []struct {
			Members  list
			Previous struct{ Members list }
		}
	}
	if err := json.Unmarshal(text, &given); err != nil {
		c.errorf("", "%s", truncate(err.Error(), maxLine))
	}
	for i, g := range given.Groups {
		for j, m := range slices.Concat(g.Members, g.Previous.Members) {
			at := fmt.Sprintf("members[%d]", j)
			if before := len(g.Members); j >= before {
				at = fmt.Sprintf("previous.members[%d]", j-before)
			}
			if m.Priority == nil {
				c.errorf(fmt.Sprintf("groups[%d].%s.priority", i, at), "is missing")
			}
		}
	}
}

// file checks a file and fills in its groups.
func (c *checker) file(f *File) {
	conf := &f.Config
	conf.Domain, conf.API = cmp.Or(conf.Domain, defaultDomain), cmp.Or(conf.API, defaultAPI)
	conf.State = conf.resolve(cmp.Or(conf.State, filepath.Base(conf.file)+".state"))
	c.text("self", conf.Self, CheckMemberName)
	c.text("domain", conf.Domain, CheckGroupName)
	c.text("listen", conf.Listen, checkAddress)
	c.text("state", conf.State, checkLength)
	c.localAPI(conf)
	c.tls(conf)
	if len(f.Groups) == 0 || len(f.Groups) > maxGroups {
		c.errorf("groups", "must have from 1 to %d entries, got %d", maxGroups, len(f.Groups))
		return
	}
	names := map[string]int{}
	for i := range f.Groups {
		at := fmt.Sprintf("groups[%d]", i)
		g := c.group(at, &f.Groups[i])
		if first, ok := names[g.Name]; ok {
			c.errorf(at+".name", "%s is already the name of groups[%d]", truncate(g.Name, maxShown), first)
		}
		names[g.Name] = i
		if !g.List.Has(conf.Self) {
			c.errorf(at+".members", "must include self (%s): add it, or remove this group", truncate(conf.Self, maxShown))
		}
		conf.Groups = append(conf.Groups, g)
	}
	c.addresses(conf)
}

// resolve resolves a path relative to the directory of the configuration file.
func (c *Config) resolve(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(c.file), path)
}

var tlsFields = [...]string{"certFile", "keyFile", "caFile"}

func (t *TLS) files() [3]*string { return [...]*string{&t.CertFile, &t.KeyFile, &t.CAFile} }

func (c *checker) tls(conf *Config) {
	t, missing := &conf.TLS, 0
	for i, file := range t.files() {
		if *file == "" {
			missing++
			continue
		}
		c.text("tls."+tlsFields[i], *file, checkLength)
		*file = conf.resolve(*file)
	}
	switch {
	case t.Insecure && missing < len(tlsFields):
		c.errorf("tls.insecure", "must not be true if there are certificate files: remove it or them")
	case !t.Insecure && missing > 0:
		c.errorf("tls", "must have certFile, keyFile and caFile; or insecure: true, if all addresses are loopback addresses")
	}
}

// localAPI checks the address of the local API. Every client that reaches the API can make the coordinator step down.
func (c *checker) localAPI(conf *Config) {
	c.text("api", conf.API, CheckAPI)
	if len(conf.APIUIDs) > maxUIDs {
		c.errorf("apiUIDs", "must have at most %d entries, got %d", maxUIDs, len(conf.APIUIDs))
	}
	for i, uid := range conf.APIUIDs {
		c.number(fmt.Sprintf("apiUIDs[%d]", i), uint64(uid), 0, math.MaxUint32-1)
	}
	if _, ok := SocketPath(conf.API); ok {
		return
	}
	if len(conf.APIUIDs) > 0 {
		c.errorf("apiUIDs", "requires api to be a Unix socket, as in unix:///run/conclave/agent.sock, got %q",
			truncate(conf.API, maxShown))
	}
	api, err := parseEndpoint(conf.API)
	if err != nil {
		return
	}
	if !api.loopback() && !conf.ExposeAPI {
		c.errorf("api", "must be a loopback address such as %s, got %q: set exposeAPI: true "+
			"to allow every client that reaches it to make the coordinator step down", defaultAPI, conf.API)
	}
	if listen, err := parseEndpoint(conf.Listen); err == nil && api.overlaps(listen) {
		c.errorf("listen", "must have another port than api (%s), got %q", conf.API, conf.Listen)
	}
}

const (
	unixScheme = "unix://"
	// maxSocketPath is the maximum length of the path of a Unix socket in Linux.
	maxSocketPath = 107
	// maxUIDs is more than the users of an application.
	maxUIDs = 64
)

// SocketPath returns the path of the Unix socket that an address of the local API names, if it names one.
func SocketPath(api string) (path string, ok bool) { return strings.CutPrefix(api, unixScheme) }

// CheckAPI checks the address of the local API.
func CheckAPI(api string) error {
	path, ok := SocketPath(api)
	err := checkAddress(api)
	switch {
	case !ok && (err == nil || !strings.HasPrefix(api, "unix:")): // unix may also be the name of a host.
		return err
	case !ok || !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/":
		return fmt.Errorf("must have an absolute path after unix://, as in unix:///run/conclave/agent.sock, got %q",
			truncate(api, maxShown))
	case len(path) > maxSocketPath:
		return fmt.Errorf("must have a path of at most %d bytes, got %d", maxSocketPath, len(path))
	case strings.ContainsRune(path, 0):
		return errors.New("must have no zero byte")
	}
	return nil
}

// entry is an address of a member.
type entry struct {
	field, name, address string
	to                   endpoint
	// previous: the member is in a previous list. Another one may have its address by now.
	previous bool
}

// addresses checks that names and addresses correspond one to one in all groups, and that peers reach this agent.
func (c *checker) addresses(conf *Config) {
	var entries []entry
	add := func(at string, list []memberlist.Member, previous bool) {
		for i, m := range list {
			if to, err := parseEndpoint(m.Address); err == nil && m.Name != "" { // Otherwise, the error is recorded.
				field := fmt.Sprintf("%s[%d].address", at, i)
				entries = append(entries, entry{field, m.Name, strings.ToLower(m.Address), to, previous})
			}
		}
	}
	for i, g := range conf.Groups {
		add(fmt.Sprintf("groups[%d].members", i), g.List.Members, false)
		if g.List.Previous != nil {
			add(fmt.Sprintf("groups[%d].previous.members", i), g.List.Previous.Members, true)
		}
	}
	c.reachable(conf, entries)
	byName, byAddress := map[string]entry{}, map[string]string{}
	for _, e := range entries {
		first, known := byName[e.name]
		other, taken := byAddress[e.address]
		switch {
		case known && first.address != e.address:
			c.errorf(e.field, "must be %s as in %s, got %s: a name denotes one agent at one address",
				first.address, first.field, e.address)
		case taken && other != e.name && !e.previous:
			c.errorf(e.field, "%s is already the address of %s: each agent needs its own address", e.address, other)
		case !e.previous:
			byAddress[e.address] = e.name
		}
		if !known {
			byName[e.name] = e
		}
	}
}

// reachable checks addresses together with listen. It compares ports only: an agent may listen on all addresses, and be
// reached by a host name.
func (c *checker) reachable(conf *Config, entries []entry) {
	listen, err := parseEndpoint(conf.Listen)
	if err != nil {
		return
	}
	if conf.TLS.Insecure && !listen.loopback() {
		c.errorf("listen", notLoopback, conf.Listen)
	}
	for _, e := range entries {
		if conf.TLS.Insecure && !e.to.loopback() {
			c.errorf(e.field, notLoopback, e.address)
		}
		if e.name == conf.Self && !e.previous && e.to.port != listen.port {
			c.errorf(e.field, "must have the port of listen, %d, because it is that of self, got %d", listen.port, e.to.port)
		}
	}
}

const notLoopback = "must be a loopback address such as 127.0.0.1:7401 with insecure: true, got %q: " +
	"or specify certificate files"

// CheckFiles checks the files that the configuration refers to. It returns Errors
// if an agent could not start with them.
func (c *Config) CheckFiles() error {
	found := &checker{source: c.file}
	if c.TLS.Insecure {
		return nil
	}
	for i, path := range c.TLS.files() {
		if _, err := os.Stat(*path); err != nil {
			found.errorf("tls."+tlsFields[i], "%s", err)
		}
	}
	if err := found.err(); err != nil {
		return err
	}
	files, err := identity.Open(c.IdentityPaths(), nil)
	if err != nil {
		found.errorf("tls", "%s", err)
		return found.err()
	}
	names := files.Names()
	for i := range c.Groups {
		name := identity.Name{Domain: c.Domain, Group: c.Groups[i].Name, Member: c.Self}
		if !names.Has(name) {
			found.errorf("tls.certFile", "%s must include the name %s, got %s", c.TLS.CertFile, name, shortList(names))
		}
	}
	return found.err()
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
