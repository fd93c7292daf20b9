package api

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// props is what the tests read of a schema.
type props struct {
	Type, Format         string
	Minimum, Maximum     *float64
	MinLength, MaxLength *int64
	MinItems, MaxItems   *int64
	MaxProperties        *int64
	Enum                 []string
	ListType             *string                          `json:"x-kubernetes-list-type"`
	Validations          []struct{ Rule, Message string } `json:"x-kubernetes-validations"`
	Required             []string
	Properties           map[string]props
	Items                *props
	AdditionalProperties *props
}

// schema returns the schema of the CRD.
func schema(t *testing.T) *props {
	t.Helper()
	data := must.ReadFile(t, filepath.Join(bases, "conclave.dev_electiongroups.yaml"))
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema props }
			}
		}
	}
	must.Succeed(t, yaml.Unmarshal(data, &crd))
	return &crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}

var (
	index  = regexp.MustCompile(`\[[0-9]+\]|\[[a-z]+\]`)
	number = regexp.MustCompile(` \([0-9]+\)`)
)

// TestEachRuleHasACase tests that each rule of the schema, and each bound of the spec, has a
// case in testdata/rules with the error message.
func TestEachRuleHasACase(t *testing.T) {
	var messages []string
	for _, a := range readCases(t) {
		for _, message := range a.Refused {
			messages = append(messages, number.ReplaceAllString(index.ReplaceAllString(message, ""), ""))
		}
	}
	want := func(field, words string) {
		if !slices.ContainsFunc(messages, func(message string) bool {
			return strings.HasPrefix(message, field) && strings.Contains(message, words)
		}) {
			t.Errorf("got no case in which %s is rejected with %q", field, words)
		}
	}
	walk("", schema(t), func(path string, s *props) {
		for _, rule := range s.Validations {
			if rule.Message == "" {
				t.Errorf("%s: got no message of the rule %s", path, rule.Rule)
			}
			want(path, rule.Message)
		}
		if !strings.HasPrefix(path, "spec") {
			return
		}
		for words, there := range map[string]bool{
			"should be greater than or equal to": s.Minimum != nil,
			"should be less than or equal to":    s.Maximum != nil,
			"should be at least":                 s.MinLength != nil,
			"Too long":                           s.MaxLength != nil,
			"should have at least":               s.MinItems != nil,
			"Too many":                           s.MaxItems != nil || s.MaxProperties != nil,
			"Unsupported value":                  len(s.Enum) > 0,
			"Duplicate value":                    s.ListType != nil && *s.ListType != "atomic",
		} {
			if there {
				want(path, words)
			}
		}
		for _, key := range s.Required {
			want(strings.TrimPrefix(path+"."+key, "."), "Required value")
		}
	})
}

func walk(path string, s *props, visit func(string, *props)) {
	visit(path, s)
	for name, property := range s.Properties {
		walk(strings.TrimPrefix(path+"."+name, "."), &property, visit)
	}
	if s.Items != nil {
		walk(path, s.Items, visit)
	}
	if s.AdditionalProperties != nil {
		walk(path, s.AdditionalProperties, visit)
	}
}

// TestEverythingIsBounded tests that each string, list, map and integer of the group has a
// bound. The type of conditions has its own bounds.
func TestEverythingIsBounded(t *testing.T) {
	walk("", schema(t), func(path string, s *props) {
		bounded := true
		switch s.Type {
		case "string":
			bounded = s.MaxLength != nil || len(s.Enum) > 0 || s.Format == "date-time"
		case "array":
			bounded = s.MaxItems != nil
		case "object":
			bounded = s.AdditionalProperties == nil || s.MaxProperties != nil
		case "integer":
			bounded = s.Minimum != nil && (s.Maximum != nil || s.Format == "int64")
		}
		if !bounded && path != "apiVersion" && path != "kind" {
			t.Errorf("%s (%s): got no bound", path, s.Type)
		}
	})
}
