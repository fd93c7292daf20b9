package pod

import (
	"os"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/testwait"
)

func TestMain(m *testing.M) { os.Exit(testwait.Main(m, 8)) }
