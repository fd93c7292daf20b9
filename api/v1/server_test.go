package v1_test

import (
	"fmt"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const bases = "../../config/crd/bases"

// server is a real API server with the CRD, or nil where there is none.
var server *rest.Config

func TestMain(m *testing.M) { os.Exit(withServer(m)) }

func withServer(m *testing.M) int {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		if os.Getenv("CI") == "true" {
			fmt.Fprintln(os.Stderr, "CI must not skip tests: set KUBEBUILDER_ASSETS to what make envtest-assets prints")
			return 1
		}
		return m.Run()
	}
	environment := envtest.Environment{CRDDirectoryPaths: []string{bases}, ErrorIfCRDPathMissing: true}
	config, err := environment.Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the API server:", err)
		return 1
	}
	server = config
	status := m.Run()
	if err := environment.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the API server:", err)
		return 1
	}
	return status
}

// connect returns a client of the API server that is as strict as kubectl, or
// skips the test.
func connect(t *testing.T) client.Client {
	t.Helper()
	if server == nil {
		t.Skip("no API server: set KUBEBUILDER_ASSETS to what make envtest-assets prints")
	}
	c, err := client.New(server, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return client.WithFieldValidation(c, metav1.FieldValidationStrict)
}
