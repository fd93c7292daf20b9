package inject

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// MaxGroups is the maximum number of groups of an agent.
const MaxGroups = 100

var groupName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`)

// Groups returns the groups that the annotation conclave.dev/groups names, in its order.
func Groups(annotation string) ([]string, error) {
	const requirement = "annotation " + v1.AnnotationGroups +
		" must name the groups that the pod takes part in, such as ledger or ledger,mail"
	names := slices.Collect(v1.GroupNames(annotation))
	if len(names) == 0 {
		return nil, errors.New(requirement)
	}
	if len(names) > MaxGroups {
		return nil, fmt.Errorf("%s: it must name at most %d, got %d", requirement, MaxGroups, len(names))
	}
	seen := map[string]bool{}
	for _, name := range names {
		switch {
		case !groupName.MatchString(name):
			return nil, fmt.Errorf("%s: %.80q isn't a valid group name", requirement, name)
		case len(name) > v1.MaxNameLength:
			return nil, fmt.Errorf("%s: a group name must have at most %d characters, but %.80q has %d", requirement,
				v1.MaxNameLength, name, len(name))
		case seen[name]:
			return nil, fmt.Errorf("%s: it names %s twice", requirement, name)
		}
		seen[name] = true
	}
	return names, nil
}

// checkProbe applies the rules of the agent. Otherwise, the agent would reject an
// invalid probe only after the pod has started.
func checkProbe(probe string) error {
	if probe == "" {
		return nil
	}
	invalid := fmt.Errorf(
		"annotation %s must be an http URL with a loopback address, such as http://127.0.0.1:8080/healthz, got %.80q",
		v1.AnnotationProbe, probe)
	u, err := url.Parse(probe)
	if err != nil || u.Scheme != "http" || !isLoopback(u.Hostname()) || u.User != nil || u.Fragment != "" ||
		strings.HasSuffix(u.Host, ":") {
		return invalid
	}
	if port := u.Port(); port != "" {
		if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
			return invalid
		}
	}
	return nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
