package spread

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

func at(name, location string, alternatives ...string) Group {
	g := Group{Name: types.NamespacedName{Namespace: "bank", Name: name}, Over: v1.SpreadZone, Location: location}
	for _, a := range alternatives {
		g.Alternatives = append(g.Alternatives, Alternative{Pod: name + "-" + a, Location: a})
	}
	return g
}

func TestMoves(t *testing.T) {
	onNode := func(g Group) Group { g.Over = v1.SpreadNode; return g }
	of := func(namespace string, g Group) Group { g.Name.Namespace = namespace; return g }
	for name, c := range map[string]struct {
		groups []Group
		want   string
	}{
		"nothing":                     {nil, ""},
		"one group":                   {[]Group{at("a", "x", "y")}, ""},
		"a difference of one":         {[]Group{at("a", "x", "y"), at("b", "x", "y"), at("c", "y", "x")}, ""},
		"a difference of two":         {[]Group{at("a", "x", "y"), at("b", "x", "y")}, "a-y"},
		"a group without alternative": {[]Group{at("a", "x"), at("b", "x", "y")}, "b-y"},
		"to the emptiest": {
			[]Group{at("a", "x", "y", "z"), at("b", "x", "y", "z"), at("c", "x", "y", "z"), at("d", "y")}, "a-z",
		},
		"from the fullest": {
			[]Group{at("a", "x", "z"), at("b", "x"), at("c", "y", "z"), at("d", "y"), at("e", "y")}, "c-z",
		},
		"an unknown location": {[]Group{at("a", "", "y"), at("b", "", "y"), at("c", "x", ""), at("d", "x", "")}, ""},
		"nodes and zones are counted apart": {
			[]Group{at("a", "x", "y"), onNode(at("b", "x", "y"))}, "",
		},
		"namespaces take turns": {[]Group{
			of("shop", at("a", "x", "y")), of("shop", at("b", "x", "y")), of("shop", at("c", "x", "y")), at("d", "x", "y"),
			of("shop", at("e", "x", "y")), at("f", "x", "y"),
		}, "a-y d-y"},
		"at most two": {[]Group{at("a", "x", "y"), at("b", "x", "y"), at("c", "x", "y"), at("d", "x", "y"), at("e", "x",
			"y"), at("f", "x", "y")}, "a-y b-y"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for i, m := range Moves(c.groups, 2) {
				if i > 0 {
					got += " "
				}
				got += m.Pod
			}
			expect.Equal(t, got, c.want)
		})
	}
}

// Groups with members everywhere end with a difference of at most one, and no group moves twice.
func TestMovesConverge(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		zones := []string{"x", "y", "z", "w"}[:2+rng.IntN(3)]
		var groups []Group
		for i := range 1 + rng.IntN(40) {
			g := at(fmt.Sprint("g", i), zones[rng.IntN(1+rng.IntN(len(zones)))])
			for _, zone := range zones {
				if zone != g.Location {
					g.Alternatives = append(g.Alternatives, Alternative{Pod: zone, Location: zone})
				}
			}
			groups = append(groups, g)
		}
		moved := map[types.NamespacedName]bool{}
		for rounds := 0; ; rounds++ {
			moves := Moves(groups, 3)
			if len(moves) == 0 {
				break
			}
			if rounds > len(groups) {
				t.Fatal("the moves don't end")
			}
			for _, m := range moves {
				if moved[m.Group] {
					t.Fatalf("group %s moves twice", m.Group.Name)
				}
				moved[m.Group] = true
				for i := range groups {
					if g := &groups[i]; g.Name == m.Group {
						g.Location, g.Alternatives = m.Pod, []Alternative{{Pod: g.Location, Location: g.Location}}
					}
				}
			}
		}
		counts := map[string]int{}
		for i := range groups {
			counts[groups[i].Location]++
		}
		least, most := len(groups), 0
		for _, zone := range zones {
			least, most = min(least, counts[zone]), max(most, counts[zone])
		}
		if most-least > 1 {
			t.Fatalf("%d groups in %d zones: got %v", len(groups), len(zones), counts)
		}
	}
}
