package inject_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestPatchPreservesThePod expects that all fields of a pod remain, including unknown ones. The files in testdata have
// what a patch adds.
func TestPatchPreservesThePod(t *testing.T) {
	for seed := range uint64(2000) {
		draw := random{rand.New(rand.NewPCG(seed, 0))}
		pod := draw.pod()
		operations, err := inject.Patch(pod, inject.NamedGroups, nil, settings)
		if err != nil || len(operations) == 0 {
			t.Fatalf("seed %d: Patch(%s): got operations %v and error %v, want operations", seed, pod, operations, err)
		}
		if patched := apply(t, pod, operations); !preserves(decode(t, pod), decode(t, patched)) {
			t.Fatalf("seed %d: got\n%s\nwant all of\n%s", seed, patched, pod)
		}
	}
}

// preserves reports whether a value still has all fields and items of an earlier one, with the items in their order.
func preserves(before, after any) bool {
	switch before := before.(type) {
	case map[string]any:
		after, ok := after.(map[string]any)
		for key, value := range before {
			now, remains := after[key]
			ok = ok && remains && preserves(value, now)
		}
		return ok
	case []any:
		after, ok := after.([]any)
		for i := 0; ok && i < len(before); i++ {
			at := slices.IndexFunc(after, func(item any) bool { return preserves(before[i], item) })
			if ok = at >= 0; ok {
				after = after[at+1:]
			}
		}
		return ok
	case nil: // A list that is null may get items.
		_, isList := after.([]any)
		return after == nil || isList
	}
	return before == after
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
