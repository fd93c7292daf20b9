package catalog_test

import (
	"bytes"
	"reflect"
	"testing"
	"unsafe"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
)

// constant are the fields that never change, or by which nothing is decided: the
// logical clock. Of the member list, only the version is told.
var constant = map[string]bool{"Self": true, "Timing": true, "Roster": true, "roster": true, "lamport": true}

// An exhaustive search knows a state by its code. A field that the code left out
// would make it blind for what the field decides, and no run would show that. So
// every field of every machine must make a difference.
func TestEveryFieldIsEncoded(t *testing.T) {
	roster, err := election.NewRoster(1, []election.Member{{ID: 1, Priority: 1}, {ID: 2, Priority: 2}, {ID: 3, Priority: 3}})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range catalog.All() {
		m, err := a.New(election.Config{
			Self: 2, Roster: roster, Term: 1, Coordinator: 3, Timing: election.DefaultTiming(latency, 0),
		})
		if err != nil {
			t.Fatal(err)
		}
		fields := 0
		eachField(reflect.ValueOf(m).Elem(), a.Name, func(name string, field reflect.Value) {
			fields++
			before, was := m.Encode(nil, 10), reflect.New(field.Type()).Elem()
			was.Set(field)
			change(t, name, field)
			if bytes.Equal(m.Encode(nil, 10), before) {
				t.Errorf("%s isn't encoded", name)
			}
			field.Set(was)
		})
		if fields < 8 {
			t.Errorf("%s: only %d fields were found", a.Name, fields)
		}
	}
}

// eachField visits the fields of a struct, and of the structs in it.
func eachField(v reflect.Value, name string, visit func(string, reflect.Value)) {
	for i := range v.NumField() {
		field, called := v.Field(i), v.Type().Field(i).Name
		if constant[called] {
			continue
		}
		// Fields of other packages can be read but not set, unless by their address.
		field = reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
		if field.Kind() == reflect.Struct {
			eachField(field, name+"."+called, visit)
			continue
		}
		visit(name+"."+called, field)
	}
}

func change(t *testing.T, name string, field reflect.Value) {
	t.Helper()
	switch field.Kind() {
	case reflect.Bool:
		field.SetBool(!field.Bool())
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		field.SetUint(field.Uint() ^ 1)
	case reflect.Int, reflect.Int64:
		field.SetInt(field.Int() ^ 1<<20)
	case reflect.Slice:
		field.Set(reflect.ValueOf(election.IDs{1}))
	default:
		t.Fatalf("%s is of a kind that this test can't change: %s", name, field.Kind())
	}
}
