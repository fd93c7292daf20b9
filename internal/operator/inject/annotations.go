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

// maxGroups is how many groups an agent can be in.
const maxGroups = 100

var groupName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`)

// Groups are those that the annotation conclave.dev/groups names, in its order.
func Groups(annotation string) ([]string, error) {
	const remedy = "annotation " + v1.AnnotationGroups + " must name the groups that the pod takes part in, such as ledger or ledger,mail"
	names := slices.Collect(v1.GroupNames(annotation))
	if len(names) == 0 {
		return nil, errors.New(remedy)
	}
	if len(names) > maxGroups {
		return nil, fmt.Errorf("%s: %d at most, not %d", remedy, maxGroups, len(names))
	}
	seen := map[string]bool{}
	for _, name := range names {
		switch {
		case !groupName.MatchString(name):
			return nil, fmt.Errorf("%s: %q can't be the name of a group", remedy, shortened(name))
		case len(name) > v1.MaxNameLength:
			return nil, fmt.Errorf("%s: a name has %d characters at most, and %q has %d", remedy, v1.MaxNameLength, shortened(name), len(name))
		case seen[name]:
			return nil, fmt.Errorf("%s: it names %s twice", remedy, name)
		}
		seen[name] = true
	}
	return names, nil
}

// checkProbe goes by the rules of the agent, which would refuse anything else
// only when the pod has started.
func checkProbe(probe string) error {
	if probe == "" {
		return nil
	}
	wrong := fmt.Errorf("annotation %s must be http on a loopback address, such as http://127.0.0.1:8080/healthz, not %q",
		v1.AnnotationProbe, shortened(probe))
	u, err := url.Parse(probe)
	if err != nil || u.Scheme != "http" || !local(u.Hostname()) || u.User != nil || u.Fragment != "" || strings.HasSuffix(u.Host, ":") {
		return wrong
	}
	if port := u.Port(); port != "" {
		if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
			return wrong
		}
	}
	return nil
}

func local(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// shortened keeps a line a line.
func shortened(text string) string {
	const most = 80
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
