package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/conclave-dev/conclave/internal/chaos"
	"github.com/conclave-dev/conclave/internal/chaos/live"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
)

// chooseKinds sets the kinds of faults. If the user has chosen some, all of them must be possible. Otherwise, it
// reports those that aren't.
func chooseKinds(ctx context.Context, run *live.Run, chosen []chaos.Kind) (notPossible map[string]string, err error) {
	candidates := chosen
	if len(chosen) == 0 {
		_, ofGroup := run.Subject.(*live.Group)
		candidates = slices.DeleteFunc(chaos.Kinds(), func(k chaos.Kind) bool { return k.OfGroup && !ofGroup })
	}
	run.Kinds, notPossible = nil, map[string]string{}
	for _, kind := range candidates {
		reason, err := run.NotPossible(ctx, kind)
		switch {
		case err != nil:
			return nil, clusteraccess.RequestError(err)
		case reason == "":
			run.Kinds = append(run.Kinds, kind)
		case len(chosen) > 0:
			return nil, fmt.Errorf("faults of kind %s aren't possible: %s", kind.Name, reason)
		default:
			notPossible[kind.Name] = reason
			run.Printf("not possible: %s: %s", kind.Name, reason)
		}
	}
	if len(run.Kinds) == 0 {
		return nil, errors.New("no kind of fault is possible: see the reasons above")
	}
	return notPossible, nil
}
