package inject_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestPatchPreservesThePod removes the agent from a patched pod, and expects the
// original pod with all its fields, including unknown ones.
func TestPatchPreservesThePod(t *testing.T) {
	for seed := range uint64(2000) {
		draw := random{rand.New(rand.NewPCG(seed, 0))}
		pod := draw.pod()
		operations, err := inject.Patch(pod, settings)
		if err != nil || len(operations) == 0 {
			t.Fatalf("seed %d: Patch(%s): got operations %v and error %v, want operations", seed, pod, operations, err)
		}
		before, after := decode(t, pod), decode(t, apply(t, pod, operations))
		withoutAgent(t, before, after)
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("seed %d: pod without the agent: got\n%v\nwant\n%v", seed, after, before)
		}
	}
}

// withoutAgent removes the agent and its volumes from after.
func withoutAgent(t *testing.T, before, after map[string]any) {
	t.Helper()
	withoutExclusions(t, before, after)
	was, ok := before["spec"].(map[string]any)
	spec, is := after["spec"].(map[string]any)
	if !ok || !is {
		t.Fatalf("%v or %v has no spec", before, after)
	}
	all := named(t, spec, "initContainers")
	must.Equalf(t, all[0].name, v1.AgentContainer, "first init container (the agent)")
	restore(spec, was, "initContainers", all[1:])
	want := []any{"conclave", "conclave-state"}
	if hostNetwork, ok := was["hostNetwork"].(bool); ok && hostNetwork {
		want = append(want, "conclave-api")
		withoutSocket(t, was, spec, "initContainers")
		withoutSocket(t, was, spec, "containers")
	}
	all = named(t, spec, "volumes")
	last := len(all) - len(want)
	for i, name := range want {
		if all[last+i].name != name {
			t.Fatalf("got last volumes %v, want %v", all[last:], want)
		}
	}
	restore(spec, was, "volumes", all[:last])
}

// withoutExclusions removes the annotations that exclude ports or permit the deletion of volumes, which
// the pod didn't have.
func withoutExclusions(t *testing.T, before, after map[string]any) {
	t.Helper()
	annotations := func(pod map[string]any) map[string]any {
		metadata, _ := pod["metadata"].(map[string]any)
		found, ok := metadata["annotations"].(map[string]any)
		if !ok {
			t.Fatalf("got metadata %v, want annotations", metadata)
		}
		return found
	}
	was, is := annotations(before), annotations(after)
	delete(is, "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes")
	for _, key := range exclusionAnnotations {
		if value := is[key]; was[key] == nil && value != "7373,7375" && value != "7373" {
			t.Fatalf("got %v in annotation %s, want the ports of the agent", value, key)
		}
		delete(is, key)
	}
}

// withoutSocket removes the socket and its address from the containers of the pod.
func withoutSocket(t *testing.T, was, spec map[string]any, containers string) {
	t.Helper()
	before, _ := was[containers].([]any)
	after, _ := spec[containers].([]any)
	for i := range after {
		old, ok := before[i].(map[string]any)
		container, is := after[i].(map[string]any)
		if !ok || !is {
			t.Fatalf("got container %v, was %v", after[i], before[i])
		}
		for key, name := range map[string]any{"volumeMounts": "conclave-api", "env": "CONCLAVE_AGENT"} {
			all := named(t, container, key)
			last := len(all) - 1
			if all[last].name != name {
				t.Fatalf("got %s %v, want the last one to be %s", key, all, name)
			}
			restore(container, old, key, all[:last])
		}
	}
}

// entry is an item of a list.
type entry struct {
	name  any
	whole any
}

func named(t *testing.T, spec map[string]any, key string) []entry {
	t.Helper()
	list, ok := spec[key].([]any)
	if !ok {
		t.Fatalf("got %s %v, want a list", key, spec[key])
	}
	var all []entry
	for _, whole := range list {
		fields, ok := whole.(map[string]any)
		if !ok {
			t.Fatalf("got item %v in %s, want an object", whole, key)
		}
		all = append(all, entry{fields["name"], whole})
	}
	return all
}

// restore sets a list to its remaining items. If the pod had null or no list, restore restores that.
func restore(spec, was map[string]any, key string, rest []entry) {
	list := []any{}
	for _, e := range rest {
		list = append(list, e.whole)
	}
	switch value, ok := was[key]; {
	case !ok && len(list) == 0:
		delete(spec, key)
	case value == nil && len(list) == 0:
		spec[key] = nil
	default:
		spec[key] = list
	}
}

func decode(t *testing.T, object []byte) map[string]any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber() // a number that doesn't fit into a float64 must be preserved, too
	var decoded map[string]any
	must.Succeed(t, decoder.Decode(&decoded))
	return decoded
}

// random generates pods that opted in, with unknown fields.
type random struct{ *rand.Rand }

func (r random) pod() []byte {
	pod := r.object(2)
	metadata := r.object(2)
	metadata["labels"] = map[string]any{"conclave.dev/agent": "enabled", "app/x~y": r.text()}
	metadata["annotations"] = map[string]any{"conclave.dev/groups": "ledger", "other": r.text()}
	spec := r.object(3)
	delete(spec, "hostNetwork")
	r.list(spec, "initContainers", 0, func() any { return r.container() })
	r.list(spec, "containers", 1, func() any { return r.container() })
	r.list(spec, "volumes", 0, func() any {
		volume := r.object(3)
		volume["name"] = r.text()
		return volume
	})
	if r.IntN(2) == 0 {
		spec["hostNetwork"] = r.IntN(2) == 0
	}
	pod["metadata"], pod["spec"] = metadata, spec
	raw, err := json.Marshal(pod)
	if err != nil {
		panic(err)
	}
	return raw
}

// list sets a key to a list, an empty list or null, or removes it.
func (r random) list(of map[string]any, key string, minimum int, draw func() any) {
	delete(of, key)
	if minimum == 0 && r.IntN(3) == 0 {
		if r.IntN(2) == 0 {
			of[key] = nil
		}
		return
	}
	all := []any{}
	for range minimum + r.IntN(3) {
		all = append(all, draw())
	}
	of[key] = all
}

func (r random) container() any {
	c := r.object(3)
	c["name"] = r.text()
	if r.IntN(2) == 0 {
		c["restartPolicy"] = "Always"
	}
	for _, key := range []string{"env", "volumeMounts"} {
		r.list(c, key, 0, func() any {
			o := r.object(1)
			o["name"] = r.text()
			return o
		})
	}
	if r.IntN(2) == 0 {
		port := r.object(1)
		port["containerPort"] = 8000 + r.IntN(1000)
		port["protocol"] = "TCP"
		c["ports"] = []any{port}
	}
	return c
}

func (r random) object(depth int) map[string]any {
	o := map[string]any{}
	for range r.IntN(4) {
		o["x-"+r.text()] = r.value(depth)
	}
	return o
}

func (r random) value(depth int) any {
	kind := r.IntN(8)
	if depth == 0 {
		kind = r.IntN(6)
	}
	switch kind {
	case 0:
		return nil
	case 1:
		return r.IntN(2) == 0
	case 2:
		return json.Number(fmt.Sprint(r.Uint64()))
	case 3:
		return json.Number("1.50")
	case 4:
		return ""
	case 5:
		return r.text()
	case 6:
		return r.object(depth - 1)
	default:
		all := []any{}
		for range r.IntN(3) {
			all = append(all, r.value(depth-1))
		}
		return all
	}
}

// text includes characters that JSON or JSON Pointer must escape.
func (r random) text() string {
	letters := []rune("abcxyz-_./~\"\\<>& äß漢\u2028")
	text := make([]rune, 1+r.IntN(8))
	for i := range text {
		text[i] = letters[r.IntN(len(letters))]
	}
	return string(text)
}
