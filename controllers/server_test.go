package controllers_test

import (
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/go-logr/logr"

	"github.com/conclave-dev/conclave/internal/testing/apiserver"
)

const bases = "../config/crd/bases"

var apiServer = apiserver.New(bases)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	apiServer.Main(m)
}
