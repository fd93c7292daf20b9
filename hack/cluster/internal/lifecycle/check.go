package lifecycle

import (
	"errors"
	"os"

	"github.com/conclave-dev/conclave/hack/cluster/internal/binaries"
	"github.com/conclave-dev/conclave/hack/cluster/internal/machine"
)

// Check returns an error that lists everything that this machine lacks for a cluster.
func (c Cluster) Check() error {
	if _, err := machine.Hierarchies(); err != nil {
		return err
	}
	var missing []error
	for _, component := range append([]binaries.Component{binaries.Kubernetes}, binaries.NodeComponents...) {
		if err := c.Cache.Buildable(component); err != nil {
			missing = append(missing, err)
			break // The other components need the same tools.
		}
	}
	scratch, err := os.MkdirTemp("", "cluster-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	findings, err := machine.Probe(scratch)
	if err != nil {
		return errors.Join(append(missing, err)...)
	}
	for _, finding := range []string{findings.Network, findings.Proxy} {
		if finding != "" {
			missing = append(missing, errors.New(finding))
		}
	}
	return errors.Join(missing...)
}
