// Package testclient has clients of API servers, for tests and tools.
package testclient

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// Scheme returns the types of Kubernetes and of Conclave.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1.AddToScheme(scheme))
	return scheme
}

// New returns a client for these types.
func New(t testing.TB, config *rest.Config) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(config, client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal("cannot create a client:", err)
	}
	return c
}
