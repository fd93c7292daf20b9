package api

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// schema returns the schema of the installed CRD.
func schema(t *testing.T) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	data := must.ReadFile(t, filepath.Join(bases, "conclave.dev_electiongroups.yaml"))
	var crd apiextensionsv1.CustomResourceDefinition
	must.Succeed(t, yaml.UnmarshalStrict(data, &crd))
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
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
	walk("", schema(t), func(path string, s *apiextensionsv1.JSONSchemaProps) {
		for _, rule := range s.XValidations {
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
			"Duplicate value":                    s.XListType != nil && *s.XListType != "atomic",
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

func walk(path string, s *apiextensionsv1.JSONSchemaProps, visit func(string, *apiextensionsv1.JSONSchemaProps)) {
	visit(path, s)
	for name, property := range s.Properties {
		walk(strings.TrimPrefix(path+"."+name, "."), &property, visit)
	}
	if s.Items != nil {
		walk(path, s.Items.Schema, visit)
	}
	if s.AdditionalProperties != nil {
		walk(path, s.AdditionalProperties.Schema, visit)
	}
}

// TestEverythingIsBounded tests that each string, list, map and integer of the group has a
// bound. The type of conditions has its own bounds.
func TestEverythingIsBounded(t *testing.T) {
	walk("", schema(t), func(path string, s *apiextensionsv1.JSONSchemaProps) {
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
