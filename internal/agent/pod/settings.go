package pod

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// The folders and the address that are the same in each pod.
const (
	MountDir = "/etc/conclave"
	StateDir = "/var/lib/conclave"
)

// LocalAPI is where the application finds its agent.
var LocalAPI = net.JoinHostPort("127.0.0.1", strconv.Itoa(control.LocalPort))

// maxGroups is how many groups a pod can be in.
const maxGroups = 100

// absence is longer than an operator takes to be replaced by another one.
const defaultOperatorAbsence = time.Minute

// Settings are what the pod tells its agent.
type Settings struct {
	// Pod and Namespace are the agent's name and domain.
	Pod, Namespace string
	// Groups are those that the pod names.
	Groups []string
	// IdentityURL is the URL of the identity service, and CABundle are certificates
	// by which it is trusted, in PEM; there may be none.
	IdentityURL string
	CABundle    []byte
	// Probe asks the application, in all groups, whether it is well; or nil.
	Probe *config.Probe

	// MountDir is the folder of what the pod is given, and StateDir that of what the
	// agent keeps.
	MountDir, StateDir string
	// LocalAPI, Peers and Operator are the addresses on which applications, peers and the
	// operator are awaited.
	API, Peers, Operator string
	// OperatorAbsence is how long no operator must have listened for what it has said about
	// standing to be over.
	OperatorAbsence time.Duration
	// Build is the version of the program.
	Build string
}

// FromEnvironment understands the variables that the agent's container has.
func FromEnvironment(variable func(string) string) (Settings, error) {
	s := Settings{
		Pod: variable("POD_NAME"), Namespace: variable("POD_NAMESPACE"), IdentityURL: variable("CONCLAVE_IDENTITY"),
		CABundle: []byte(variable("CONCLAVE_CA")), MountDir: MountDir, StateDir: StateDir, API: LocalAPI,
		OperatorAbsence: defaultOperatorAbsence,
	}
	var reasons []string
	complain := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
	if err := config.CheckMemberName(s.Pod); err != nil {
		complain("POD_NAME %s", err)
	}
	if err := config.CheckGroupName(s.Namespace); err != nil {
		complain("POD_NAMESPACE %s", err)
	}
	ip, err := netip.ParseAddr(variable("POD_IP"))
	if err != nil || ip.Zone() != "" || ip.IsUnspecified() {
		complain("POD_IP must be the pod's address such as 10.0.0.7, not %q", variable("POD_IP"))
	}
	s.Peers = netip.AddrPortFrom(ip, control.PeerPort).String()
	s.Operator = netip.AddrPortFrom(ip, control.OperatorPort).String()
	at, err := url.Parse(s.IdentityURL)
	if err != nil || at.Scheme != "https" || at.Host == "" || at.RawQuery != "" || at.Fragment != "" || at.User != nil {
		complain("CONCLAVE_IDENTITY must be a URL such as https://conclave-identity.conclave-system.svc, not %q", s.IdentityURL)
	}
	s.IdentityURL = strings.TrimSuffix(s.IdentityURL, "/")
	if _, err := identity.ParseCABundle(s.CABundle); err != nil && len(s.CABundle) > 0 {
		complain("CONCLAVE_CA: %s", err)
	}
	s.parseGroups(variable("CONCLAVE_GROUPS"), complain)
	if probe := variable("CONCLAVE_PROBE"); probe != "" {
		if s.Probe, err = config.NewProbe(probe); err != nil {
			complain("CONCLAVE_PROBE %s", err)
		}
	}
	return s, config.EnvironmentErrors(reasons...)
}

// groups understands the annotation of the pod.
func (s *Settings) parseGroups(text string, complain func(string, ...any)) {
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		if name == "" || slices.Contains(s.Groups, name) {
			continue
		}
		if err := config.CheckGroupName(name); err != nil {
			complain("CONCLAVE_GROUPS: a group's name %s", err)
			return
		}
		s.Groups = append(s.Groups, name)
	}
	switch {
	case len(s.Groups) == 0:
		complain("CONCLAVE_GROUPS must name the pod's groups, by commas, such as ledger,audit")
	case len(s.Groups) > maxGroups:
		complain("CONCLAVE_GROUPS names %d groups: %d at most are possible", len(s.Groups), maxGroups)
	}
}
