// Package apiserver runs a real API server with etcd for tests. The first test that
// needs it starts it. It is a package of its own because it imports envtest.
package apiserver

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/need"
	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

// Server is the API server of a package's tests. A test starts it, not TestMain: Go's
// test cache tracks only what tests read, for example KUBEBUILDER_ASSETS.
type Server struct {
	Environment envtest.Environment

	start func() (*rest.Config, error)
}

// StartTimeout is how long a test waits for etcd and the API server to start. Other tests may occupy all cores.
const StartTimeout = 2 * time.Minute

// New returns a server with the CRDs from these folders.
func New(crds ...string) *Server {
	s := &Server{Environment: envtest.Environment{
		CRDDirectoryPaths: crds, ErrorIfCRDPathMissing: true, ControlPlaneStartTimeout: StartTimeout,
	}}
	s.start = sync.OnceValues(s.Environment.Start)
	return s
}

// Main implements TestMain for a package: it runs the tests, stops the server if it was started, and exits.
func (s *Server) Main(m *testing.M) {
	status := testwait.Main(m, 8) // most tests wait
	if s.Environment.Config != nil {
		if err := s.Environment.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "cannot stop the API server:", err)
			status = 1
		}
	}
	os.Exit(status)
}

// Config returns a copy of the client configuration of the running server. It skips the test if there are no binaries.
func (s *Server) Config(t testing.TB) *rest.Config {
	t.Helper()
	need.APIServer(t)
	config, err := s.start()
	if err != nil {
		t.Fatal("cannot start the API server:", err)
	}
	return rest.CopyConfig(config)
}

// Start starts a server for one test, without CRDs, and stops it after the test. It needs no other network than
// loopback.
func Start(t testing.TB) *envtest.Environment {
	t.Helper()
	need.APIServer(t)
	environment := &envtest.Environment{ControlPlaneStartTimeout: StartTimeout}
	environment.ControlPlane.GetAPIServer().Configure().Set("advertise-address",
		"127.0.0.1").Set("endpoint-reconciler-type", "none")
	if _, err := environment.Start(); err != nil {
		t.Fatal("cannot start the API server:", err)
	}
	t.Cleanup(func() {
		expect.Succeedf(t, environment.Stop(), "cannot stop the API server")
	})
	return environment
}
