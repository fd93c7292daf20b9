package controllers_test

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/go-logr/logr"
)

const bases = "../config/crd/bases"

// environment is a real API server with the CRD, as soon as a test needs it.
var (
	environment = envtest.Environment{CRDDirectoryPaths: []string{bases}, ErrorIfCRDPathMissing: true}
	start       = sync.OnceValues(environment.Start)
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	status := m.Run()
	if environment.Config != nil {
		if err := environment.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the API server:", err)
			status = 1
		}
	}
	os.Exit(status)
}

// server is the API server, without which the test is skipped.
func server(t *testing.T) *rest.Config {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("CI must not skip tests: set KUBEBUILDER_ASSETS to what make envtest-assets prints")
		}
		t.Skip("no API server: set KUBEBUILDER_ASSETS to what make envtest-assets prints")
	}
	config, err := start()
	if err != nil {
		t.Fatal("start the API server:", err)
	}
	return config
}
