package catalog_test

import (
	"bytes"
	"path"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// ignoredFields are the fields that never change, or that don't affect the behavior: the logical clock. Of the member
// list, only the version is encoded. In an office, some fields follow from others, and the inner election is tested
// separately.
var ignoredFields = map[string]bool{
	"Self": true, "Timing": true, "Roster": true, "roster": true, "lamport": true,
	"rules": true, "cfg": true, "inner": true, "lease": true, "clock": true,
	"now": true, "due": true, "watched": true, "support.until": true,
	"support.current": true, "support.previous": true, // follow from the grants
	"cause":   true, // what is being handled in a step
	"joinsAt": true, // what the agent reports
	// In an exhaustive search, no clock limits the terms, and links deliver BEATs in order.
	"ceiling": true, "ceilingAt": true, "lastBeat": true,
}

// An exhaustive search recognizes a state by its encoding. If the encoding omitted a field, the search would miss the
// states that differ in that field, and no run would show it. So every field of every machine must affect the encoding.
func TestEveryFieldIsEncoded(t *testing.T) {
	roster, err := election.NewRoster(1,
		[]election.Member{{ID: 1, Priority: 1}, {ID: 2, Priority: 2}, {ID: 3, Priority: 3}})
	must.Succeed(t, err)
	for _, a := range catalog.All() {
		m, err := a.New(election.Config{
			Self: 2, Roster: roster, Term: 1, Coordinator: 3, Timing: election.DefaultTiming(latency, 0),
		})
		must.Succeed(t, err)
		for _, name := range omittedFields(t, a.Name, m, 8) {
			t.Errorf("%s: got an encoding without it, want it encoded", name)
		}
	}
}

// The same for an office at work: it holds the office, has received a message of another process, and has a pending
// request. What exists only in some roles must affect the encoding in one of them.
func TestEveryFieldOfAnOfficeIsEncoded(t *testing.T) {
	ring := []election.Member{{ID: 1, Priority: 1}, {ID: 2, Priority: 2}, {ID: 3, Priority: 3}}
	roster, err := election.NewRoster(1, ring)
	must.Succeed(t, err)
	m, err := office.New(office.Config{
		Config: election.Config{Self: 2, Roster: roster, Term: 1, Coordinator: 2, Timing: election.DefaultTiming(latency,
			0)},
		NewElection: catalog.All()[0].New, Mode: office.Majority, Lease: 50, Heartbeat: 10,
		SuspicionTimeout: 25, StablePeriod: 20,
		Life: 1, Start: 1, Tenures: office.TenureRecord{Short: 1, HeldBackUntil: 5},
	})
	must.Succeed(t, err)
	var out election.Output
	m.Step(election.Input{Kind: election.TimePassed, Now: 2}, &out)
	m.Step(election.Input{Kind: election.Receive, Now: 3, Message: election.Message{
		Kind: election.Grant, From: 1, To: 2, Term: 1,
		Hold: election.Hold{Sent: 2, Life: 1, RequesterLife: 1, Version: 1, Ready: true, Lease: 40},
	}}, &out)
	m.Step(election.Input{Kind: election.Receive, Now: 4, Message: election.Message{
		Kind: election.Beat, From: 3, To: 2, Term: 2, Subject: 3, Hold: election.Hold{Sent: 2, Life: 1, Version: 1},
	}}, &out)
	if m.Status().Token == 0 {
		t.Fatal("got no tenure, want one")
	}
	omitted := map[string]int{}
	roles := []office.Role{office.Follower, office.Candidate, office.Holder, office.Draining}
	for _, role := range roles {
		setRole(m, role)
		for _, name := range omittedFields(t, "office", m, 50) {
			omitted[name]++
		}
	}
	for name, count := range omitted {
		if count == len(roles) {
			t.Errorf("%s: got an encoding without it in every role, want it encoded", name)
		}
	}
}

func setRole(m *office.Machine, role office.Role) {
	field := reflect.ValueOf(m).Elem().FieldByName("role")
	reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Set(reflect.ValueOf(role))
}

// omittedFields returns the fields that don't affect the encoding.
func omittedFields(t *testing.T, name string, m election.Machine, atLeast int) (omitted []string) {
	t.Helper()
	fields := 0
	eachField(reflect.ValueOf(m).Elem(), name, func(name string, field reflect.Value) {
		fields++
		before, was := m.Encode(nil, 10), reflect.New(field.Type()).Elem()
		was.Set(field)
		change(t, name, field)
		if bytes.Equal(m.Encode(nil, 10), before) {
			omitted = append(omitted, name)
		}
		field.Set(was)
	})
	expect.AtLeastf(t, fields, atLeast, "%s: fields", name)
	return omitted
}

// eachField visits the fields of a struct, including those of nested structs.
// Of a slice of structs it visits the fields of the second element.
func eachField(v reflect.Value, name string, visit func(string, reflect.Value)) {
	for i := range v.NumField() {
		field, called := v.Field(i), v.Type().Field(i).Name
		if ignoredFields[called] || ignoredFields[path.Base(name)+"."+called] {
			continue
		}
		// Fields of other packages can be set only by their address.
		field = reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
		called = name + "/" + called
		switch {
		case field.Kind() == reflect.Struct:
			eachField(field, called, visit)
		case field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.Struct:
			eachField(field.Index(1), called, visit)
		default:
			visit(called, field)
		}
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
		field.SetInt(max(0, field.Int()) ^ 1<<20)
	case reflect.Slice:
		if moments, ok := reflect.TypeAssert[[]election.Tick](field); ok {
			moments = slices.Clone(moments)
			moments[1] += 1 << 20
			field.Set(reflect.ValueOf(moments))
			return
		}
		if terms, ok := reflect.TypeAssert[[]election.Term](field); ok {
			terms = slices.Clone(terms)
			terms[1]++
			field.Set(reflect.ValueOf(terms))
			return
		}
		field.Set(reflect.ValueOf(election.IDs{1}))
	default:
		t.Fatalf("%s: got unsupported kind %s", name, field.Kind())
	}
}
