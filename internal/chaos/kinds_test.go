package chaos

import (
	"reflect"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

func TestScheduleDependsOnTheSeedAlone(t *testing.T) {
	first := Schedule(7, Kinds(), 100)
	if again := Schedule(7, Kinds(), 100); !reflect.DeepEqual(first, again) {
		t.Error("the same seed must give the same schedule")
	}
	if prefix := Schedule(7, Kinds(), 20); !reflect.DeepEqual(first[:20], prefix) {
		t.Error("a shorter schedule must be the beginning of a longer one")
	}
	if other := Schedule(8, Kinds(), 100); reflect.DeepEqual(first, other) {
		t.Error("another seed must give another schedule")
	}
}

func TestScheduleHasEveryKindBeforeItRepeatsOne(t *testing.T) {
	for seed := range uint64(50) {
		steps := Schedule(seed, Kinds(), 2*len(kinds))
		for _, half := range [][]Step{steps[:len(kinds)], steps[len(kinds):]} {
			seen := map[string]bool{}
			for _, s := range half {
				seen[s.Kind.Name] = true
				if s.Jitter < 0 || s.Jitter >= maxJitter {
					t.Errorf("seed %d: got jitter %s, want less than %s", seed, s.Jitter, maxJitter)
				}
			}
			must.Equalf(t, len(seen), len(kinds), "seed %d: kinds", seed)
		}
	}
}

func TestParseKinds(t *testing.T) {
	found, err := ParseKinds([]string{Freeze, Pod})
	if err != nil || len(found) != 2 || found[0].Name != Freeze || found[1].Name != Pod {
		t.Errorf("got %v, %v, want freeze and pod", found, err)
	}
	for _, c := range []struct {
		names []string
		want  string
	}{
		{[]string{"rain"}, `unknown kind of fault "rain": choose some of pod, force-pod, two, all, rollout, evict, cordon, drain, manager, agent, app, freeze, node, partition, loss, delay, apiserver`},
		{[]string{Pod, Pod}, "kind pod is named twice; name it once"},
	} {
		if _, err := ParseKinds(c.names); err == nil || err.Error() != c.want {
			t.Errorf("%v: got %v, want %s", c.names, err, c.want)
		}
	}
}
