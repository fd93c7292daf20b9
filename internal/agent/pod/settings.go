package pod

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/conclave-dev/conclave/internal/agent"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// The default directories. They are the same in each pod.
const (
	MountDir = "/etc/conclave"
	StateDir = "/var/lib/conclave"
)

// LocalAPI is the default address of the local API.
var LocalAPI = net.JoinHostPort("127.0.0.1", strconv.Itoa(control.LocalPort))

const maxGroups = 100

// defaultOperatorAbsence is longer than the time in which one operator replaces another.
const defaultOperatorAbsence = time.Minute

// defaultTenantGrace is longer than the longest lease of a group, 10 minutes.
const defaultTenantGrace = 15 * time.Minute

// Settings are the settings of an agent in a pod.
type Settings struct {
	// Pod and Namespace are the agent's name and domain.
	Pod, Namespace string
	// Groups are the groups that the pod names in its annotation. If GroupsFile is set, they
	// are the names in that file, which may change.
	Groups     []string
	GroupsFile string
	// Witness means that the pod is a witness, for groups of any namespace that the operator gives it.
	Witness bool
	// IdentityURL is the URL of the identity service. CABundle has CA certificates in PEM
	// by which the agent trusts the identity service.
	IdentityURL string
	CABundle    []byte
	// Probe is the health check of the application in all groups, or nil.
	Probe *config.Probe

	// MountDir is the directory of the pod's volumes, and StateDir the directory of the agent's state.
	MountDir, StateDir string
	// API, Peers and Operator are the addresses on which the agent accepts connections of
	// the application, of peers and of the operator. API may be a Unix socket.
	API, Peers, Operator string
	// APIUIDs are the users who may use a Unix socket. If it is nil, everyone may who
	// reaches the socket: the containers that mount its volume.
	APIUIDs []uint32
	// OperatorAbsence is the time without an operator after which exclusions end.
	OperatorAbsence time.Duration
	// TenantGrace is how long a witness keeps what it has of a namespace whose last group it has left.
	TenantGrace time.Duration
	// DroppedLogLines, if it isn't nil, counts the lines that the log has lost.
	DroppedLogLines func() uint64
	// LogLevel is the least level that is logged.
	LogLevel slog.Level
	// Build is the version of the program.
	Build string
}

// FromEnvironment reads the settings from the environment variables of the agent's container.
func FromEnvironment(variable func(string) string) (Settings, error) {
	s := Settings{
		Pod: variable("POD_NAME"), Namespace: variable("POD_NAMESPACE"), IdentityURL: variable("CONCLAVE_IDENTITY"),
		CABundle: []byte(variable("CONCLAVE_CA")), MountDir: MountDir, StateDir: StateDir,
		API:             cmp.Or(variable("CONCLAVE_API"), LocalAPI),
		OperatorAbsence: defaultOperatorAbsence, TenantGrace: defaultTenantGrace,
	}
	var errors config.Errors
	errorf := func(format string, args ...any) {
		errors = append(errors, "environment: "+fmt.Sprintf(format, args...))
	}
	if err := config.CheckMemberName(s.Pod); err != nil {
		errorf("POD_NAME %s", err)
	}
	if err := config.CheckGroupName(s.Namespace); err != nil {
		errorf("POD_NAMESPACE %s", err)
	}
	ip, err := netip.ParseAddr(variable("POD_IP"))
	if err != nil || ip.Zone() != "" || ip.IsUnspecified() {
		errorf("POD_IP must be the pod's address such as 10.0.0.7, got %q", variable("POD_IP"))
	}
	s.Peers = netip.AddrPortFrom(ip, control.PeerPort).String()
	s.Operator = netip.AddrPortFrom(ip, control.OperatorPort).String()
	at, err := url.Parse(s.IdentityURL)
	if err != nil || at.Scheme != "https" || at.Host == "" || at.RawQuery != "" || at.Fragment != "" || at.User != nil {
		errorf("CONCLAVE_IDENTITY must be a URL such as https://conclave-identity.conclave-system.svc, got %q", s.IdentityURL)
	}
	s.IdentityURL = strings.TrimSuffix(s.IdentityURL, "/")
	if _, err := identity.ParseCABundle(s.CABundle); err != nil {
		errorf("CONCLAVE_CA: %s", err)
	}
	s.GroupsFile = variable("CONCLAVE_GROUPS_FILE")
	s.Witness = variable("CONCLAVE_WITNESS") == "true"
	if s.Groups, err = parseGroups(variable("CONCLAVE_GROUPS")); err != nil {
		errorf("CONCLAVE_GROUPS: %s", err)
	} else if len(s.Groups) == 0 && s.GroupsFile == "" && !s.Witness {
		errorf("CONCLAVE_GROUPS must be the names of the pod's groups, separated by commas, such as ledger,audit")
	}
	s.parseAPI(variable("CONCLAVE_API_UIDS"), errorf)
	if probe := variable("CONCLAVE_PROBE"); probe != "" {
		if s.Probe, err = config.NewProbe(probe); err != nil {
			errorf("CONCLAVE_PROBE %s", err)
		}
	}
	if level := variable("CONCLAVE_LOG_LEVEL"); level != "" {
		if err := s.LogLevel.UnmarshalText([]byte(level)); err != nil {
			errorf("CONCLAVE_LOG_LEVEL must be debug, info, warn or error, got %q", level)
		}
	}
	if len(errors) > 0 {
		return s, errors
	}
	return s, nil
}

func (s *Settings) parseAPI(uids string, errorf func(string, ...any)) {
	if err := config.CheckAPI(s.API); err != nil {
		errorf("CONCLAVE_API %s", err)
	}
	if uids == "" {
		return
	}
	for text := range strings.SplitSeq(uids, ",") {
		uid, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			errorf("CONCLAVE_API_UIDS must be user IDs, separated by commas, such as 1000,2000, got %q", uids)
			return
		}
		s.APIUIDs = append(s.APIUIDs, uint32(uid))
	}
}

// parseGroups parses the value of the pod's annotation. It ignores empty and repeated entries. The agent doesn't use
// v1.GroupNames, because package v1 depends on libraries of Kubernetes.
func parseGroups(text string) ([]string, error) {
	var groups []string
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		if name == "" || slices.Contains(groups, name) {
			continue
		}
		if err := config.CheckGroupName(name); err != nil {
			return nil, fmt.Errorf("a group's name %w", err)
		}
		groups = append(groups, name)
	}
	if len(groups) > maxGroups {
		return nil, fmt.Errorf("there must be at most %d groups, got %d", maxGroups, len(groups))
	}
	return groups, nil
}

func (s *Settings) name(group string) identity.Name {
	return identity.Name{Domain: s.Namespace, Group: group, Member: s.Pod}
}

// allowUser returns who may use the local API, nil for everyone.
func (s *Settings) allowUser() func(uid uint32) bool {
	if s.APIUIDs == nil {
		return nil
	}
	return agent.AllowUsers(s.APIUIDs)
}
