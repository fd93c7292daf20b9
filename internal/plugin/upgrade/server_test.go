package upgrade

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/apiserver"
)

var server = apiserver.New("../../../config/crd/bases")

func TestMain(m *testing.M) { server.Main(m) }
