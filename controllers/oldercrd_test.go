package controllers_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/apiserver"
)

// writeOlderCRD writes a CRD into a folder that lacks fields which were added to the status
// later.
func writeOlderCRD(t *testing.T, folder string) {
	t.Helper()
	const file = "conclave.dev_electiongroups.yaml"
	raw, err := os.ReadFile(filepath.Join(bases, file))
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(raw, crd); err != nil {
		t.Fatal(err)
	}
	status := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties
	list := status["memberList"]
	list.XValidations = slices.DeleteFunc(list.XValidations, func(r apiextensionsv1.ValidationRule) bool { return r.FieldPath == ".leaseMillis" })
	status["memberList"] = list
	for _, fields := range []map[string]apiextensionsv1.JSONSchemaProps{list.Properties, list.Properties["previous"].Properties} {
		if _, ok := fields["leaseMillis"]; !ok {
			t.Fatalf("got fields %v, want leaseMillis", fields)
		}
		delete(fields, "leaseMillis")
	}
	delete(status["processes"].Items.Schema.Properties, "agentVersion")
	older, err := yaml.Marshal(crd)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, file), older, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestOlderCRD runs an operator with a CRD that lacks fields of the status. The operator
// doesn't write them again and again, and doesn't begin a list with another lease, because the
// status could not say for how long members may have granted. Once the CRD is applied, it does
// both.
func TestOlderCRD(t *testing.T) {
	folder := t.TempDir()
	writeOlderCRD(t, folder)
	server := apiserver.New(folder)
	e := newEnvOn(t, server)
	t.Cleanup(func() {
		if err := server.Environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	o := e.startOperator()
	e.createSettledGroup(o)
	e.expectNoWrites(o)
	if got := value(t, o.metrics, "conclave_operator_status_fields_dropped"); got != 2 {
		t.Errorf("got %v dropped fields, want the lease and the versions of agents", got)
	}
	document := e.document("ledger")
	e.edit("ledger", func(g *v1.ElectionGroup) { g.Spec.Safety.LeaseMillis = 400 })
	e.eventually("the edit is in the status", func() bool { return e.group("ledger").Status.ObservedGeneration == 2 })
	e.expectNoWrites(o)
	if got := e.document("ledger").Group; got.Version != 1 || got.Safety != document.Group.Safety {
		t.Errorf("got version %d with %+v, want version 1 and %+v", got.Version, got.Safety, document.Group.Safety)
	}
	o.stop()

	install(t, e.config)
	o = e.startOperator()
	e.awaitList("ledger", 2, "ledger-0", "ledger-1", "ledger-2")
	list := e.group("ledger").Status.MemberList
	if list.LeaseMillis != 400 || list.Previous.LeaseMillis != document.Group.Safety.LeaseMillis {
		t.Errorf("got list %+v, want a lease of 400 ms after one of %d ms", list, document.Group.Safety.LeaseMillis)
	}
	e.awaitQuiet(o)
	for _, p := range e.group("ledger").Status.Processes {
		if p.AgentVersion == "" {
			t.Errorf("got no version of the agent of %s", p.Pod)
		}
	}
	if got := value(t, o.metrics, "conclave_operator_status_fields_dropped"); got != 0 {
		t.Errorf("with the new CRD: got %v dropped fields, want none", got)
	}
}

// expectNoWrites reconciles the group, and expects that it isn't written.
func (e *env) expectNoWrites(o *operator) {
	e.t.Helper()
	e.awaitQuiet(o)
	writes, reconciles := len(o.written()), value(e.t, o.metrics, "conclave_operator_reconciles_total")
	for _, agent := range e.agents {
		agent.ChangeReport("ledger", func(r *control.Report) { r.ChangedAt = time.Now() })
	}
	e.eventually("the group has been reconciled again", func() bool {
		return value(e.t, o.metrics, "conclave_operator_reconciles_total") > reconciles
	})
	e.awaitQuiet(o)
	if extra := o.written()[writes:]; len(extra) != 0 {
		e.t.Errorf("got writes %v without a change, want none", extra)
	}
}

// install applies the current CRD.
func install(t *testing.T, config *rest.Config) {
	t.Helper()
	crds, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{bases}, ErrorIfPathMissing: true})
	if err != nil || len(crds) != 1 {
		t.Fatalf("got CRDs %v and error %v, want one CRD", crds, err)
	}
}
