package rules

import (
	"fmt"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/describe"
)

// minSpread is the number of members, and of zones, from which a group can survive the loss of any
// node or zone in all modes.
const minSpread = 3

// checkPlacement finds nodes, or else zones, whose loss stops a group although all of its members
// are up: members share them.
func checkPlacement(g *v1.ElectionGroup, object string) []Finding {
	if g.Status.MemberList == nil || len(g.Status.MemberList.Members) < minSpread {
		return nil
	}
	intact := describe.Intact(g)
	found := sharedPlaces(g, object, "node", "kubernetes.io/hostname", describe.Nodes(intact))
	if zones := describe.Zones(intact); len(found) == 0 && len(zones) >= minSpread {
		found = sharedPlaces(g, object, "zone", "topology.kubernetes.io/zone", zones)
	}
	return found
}

func sharedPlaces(g *v1.ElectionGroup, object, kind, key string, places []describe.Place) (all []Finding) {
	for _, p := range places {
		if p.Loss != describe.Stops || p.Missing == describe.EligibleMember && countEligible(g) == 1 {
			continue
		}
		all = append(all, Finding{
			Warning, object,
			fmt.Sprintf("The %s %s has %d of %d members (%s): if it fails, there is no %s.", kind, p.Name, len(p.Members),
				len(g.Status.MemberList.Members), describe.JoinNames(p.Members, "and"), p.Missing),
			fmt.Sprintf("Spread the pods over more %ss: set topologySpreadConstraints or podAntiAffinity with the topologyKey %s in the pod template.", kind, key),
		})
	}
	return all
}
