package v1_test

import (
	"fmt"
	"os"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const bases = "../../config/crd/bases"

// environment is a real API server with the CRD, as soon as a test needs it. It
// is started from a test and not before them: go test takes a result from its
// cache unless what the tests themselves have read is another, the address of
// the binaries for one.
var (
	environment = envtest.Environment{CRDDirectoryPaths: []string{bases}, ErrorIfCRDPathMissing: true}
	start       = sync.OnceValues(environment.Start)
)

func TestMain(m *testing.M) {
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

// connect returns a client of the API server that is as strict as kubectl.
func connect(t *testing.T) client.Client { return connectWith(t, client.Options{}) }

func connectWith(t *testing.T, options client.Options) client.Client {
	t.Helper()
	c, err := client.New(server(t), options)
	if err != nil {
		t.Fatal(err)
	}
	return client.WithFieldValidation(c, metav1.FieldValidationStrict)
}
