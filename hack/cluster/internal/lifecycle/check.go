package lifecycle

import (
	"errors"
	"os"

	"github.com/conclave-dev/conclave/hack/cluster/internal/binaries"
	"github.com/conclave-dev/conclave/hack/cluster/internal/machine"
)

// Check returns what this machine lacks for a cluster with all that a cluster can have: nil if nothing. Up is content with
// less.
func (c Cluster) Check() error {
	if _, err := machine.Hierarchies(); err != nil {
		return err
	}
	var lacks []error
	for _, component := range append([]binaries.Component{binaries.Kubernetes}, binaries.NodeComponents...) {
		if err := c.Cache.Buildable(component); err != nil {
			lacks = append(lacks, err)
			break // The others lack the same.
		}
	}
	scratch, err := os.MkdirTemp("", "cluster-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	findings, err := machine.Probe(scratch)
	if err != nil {
		return errors.Join(append(lacks, err)...)
	}
	for _, finding := range []string{findings.Network, findings.Proxy} {
		if finding != "" {
			lacks = append(lacks, errors.New(finding))
		}
	}
	return errors.Join(lacks...)
}
