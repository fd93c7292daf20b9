package api

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/testing/apiserver"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

const bases = "../../config/crd/bases"

var apiServer = apiserver.New(bases)

func TestMain(m *testing.M) { apiServer.Main(m) }

// connect returns a client for the API server that is as strict as kubectl.
func connect(t *testing.T) client.Client { return connectWith(t, client.Options{}) }

func connectWith(t *testing.T, options client.Options) client.Client {
	t.Helper()
	c, err := client.New(apiServer.Config(t), options)
	must.Succeed(t, err)
	return client.WithFieldValidation(c, metav1.FieldValidationStrict)
}
