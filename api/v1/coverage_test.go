package v1_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// schema is that of the CRD, as it is installed.
func schema(t *testing.T) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(bases, "conclave.dev_electiongroups.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &crd); err != nil {
		t.Fatal(err)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}

var (
	index  = regexp.MustCompile(`\[[0-9]+\]|\[[a-z]+\]`)
	number = regexp.MustCompile(` \([0-9]+\)`)
)

// TestEveryRuleRefusesSomething: for each rule of the schema, and each bound of
// the spec, a case in testdata/rules shows what is refused, and with what words.
func TestEveryRuleRefusesSomething(t *testing.T) {
	var said []string
	for _, a := range attempts(t) {
		for _, complaint := range a.Refused {
			said = append(said, number.ReplaceAllString(index.ReplaceAllString(complaint, ""), ""))
		}
	}
	want := func(field, words string) {
		if !slices.ContainsFunc(said, func(complaint string) bool {
			return strings.HasPrefix(complaint, field) && strings.Contains(complaint, words)
		}) {
			t.Errorf("no case shows that %s is refused with %q", field, words)
		}
	}
	walk("", schema(t), func(path string, s *apiextensionsv1.JSONSchemaProps) {
		for _, rule := range s.XValidations {
			if rule.Message == "" {
				t.Errorf("%s: the rule %s has no message", path, rule.Rule)
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

func walk(path string, s *apiextensionsv1.JSONSchemaProps, see func(string, *apiextensionsv1.JSONSchemaProps)) {
	see(path, s)
	for name, property := range s.Properties {
		walk(strings.TrimPrefix(path+"."+name, "."), &property, see)
	}
	if s.Items != nil {
		walk(path, s.Items.Schema, see)
	}
	if s.AdditionalProperties != nil {
		walk(path, s.AdditionalProperties.Schema, see)
	}
}

// TestEverythingIsBounded: no text, list or map of the group can grow without
// end. Those of conditions are bounded by their own type.
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
			t.Errorf("%s (%s) has no bound", path, s.Type)
		}
	})
}
