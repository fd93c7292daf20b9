package inject

import (
	"maps"
	"testing"

	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
)

func TestArgumentsOfTheOperatorCompleteOptions(t *testing.T) {
	o := inject.Options{"uid": "1000"}
	if err := completeOptions(o, []string{"--leader-elect", "--agent-uid=2000", "--log-level", "debug", "--agent-cpu-limit", "200m", "--agent-image=agent:2"}); err != nil {
		t.Fatal(err)
	}
	if want := (inject.Options{"uid": "1000", "cpu-limit": "200m"}); !maps.Equal(o, want) {
		t.Errorf("got %v, want %v", o, want)
	}
}
