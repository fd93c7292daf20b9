package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// ruleCase is a case in testdata/rules: a request of a user or the operator, and all errors of the API server. A case
// without errors is accepted. The files are templates, because some cases are long.
type ruleCase struct {
	Case string `json:"case"`
	// Name is the name of the group. The default is a generated name.
	Name string `json:"name"`
	// From and FromStatus are the spec and the status before the request.
	From       map[string]any `json:"from"`
	FromStatus map[string]any `json:"fromStatus"`
	Spec       map[string]any `json:"spec"`
	Status     map[string]any `json:"status"`
	// NoStatus removes the status.
	NoStatus bool     `json:"noStatus"`
	Refused  []string `json:"refused"`
}

// templateFuncs has the functions for long values.
var templateFuncs = template.FuncMap{
	"letters": func(n int) string { return strings.Repeat("a", n) },
	// many returns n entries of a list, in which the index replaces #.
	"many": func(n int, entry string) string {
		var all []string
		for i := range n {
			all = append(all, strings.ReplaceAll(entry, "#", strconv.Itoa(i)))
		}
		return strings.Join(all, ", ")
	},
}

var show = flag.Bool("show", false, "print the errors of the API server for each case")

func readCases(t *testing.T) []ruleCase {
	t.Helper()
	files, err := filepath.Glob("testdata/rules/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("got no test data", err)
	}
	var all []ruleCase
	for _, file := range files {
		page, err := template.New(filepath.Base(file)).Funcs(templateFuncs).ParseFiles(file)
		must.Succeed(t, err)
		var text bytes.Buffer
		must.Succeed(t, page.Execute(&text, nil))
		var some []ruleCase
		must.Succeedf(t, yaml.UnmarshalStrict(text.Bytes(), &some), "%s", file)
		for i := range some {
			some[i].Case = strings.TrimSuffix(filepath.Base(file), ".yaml") + "/" + some[i].Case
		}
		all = append(all, some...)
	}
	return all
}

func TestRules(t *testing.T) {
	c := connect(t)
	for i, a := range readCases(t) {
		t.Run(a.Case, func(t *testing.T) {
			got := causes(t, request(t, c, fmt.Sprint("case-", i), &a))
			if *show {
				t.Log(strings.Join(got, "\n"))
			}
			slices.Sort(a.Refused)
			expect.EqualSlicesf(t, got, a.Refused, "errors")
		})
	}
}

// request runs a case, and returns the error of its last request. The API server must accept all requests before.
func request(t *testing.T, c client.Client, name string, a *ruleCase) error {
	t.Helper()
	ctx := t.Context()
	before := a.From
	if before == nil {
		before = a.Spec
	}
	g := newGroup(cmp.Or(a.Name, name), before)
	if err := c.Create(ctx, g); err != nil {
		if a.From != nil || a.Status != nil {
			t.Fatal("the spec before the request is rejected:", causes(t, err))
		}
		return err
	}
	t.Cleanup(func() {
		if err := c.Delete(context.WithoutCancel(ctx), newGroup(g.GetName(), nil)); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	if a.FromStatus != nil {
		g.Object["status"] = a.FromStatus
		if err := c.Status().Update(ctx, g); err != nil {
			t.Fatal("the status before the request is rejected:", causes(t, err))
		}
	}
	if a.From != nil && a.Spec != nil {
		g.Object["spec"] = a.Spec
		return c.Update(ctx, g)
	}
	if a.NoStatus {
		delete(g.Object, "status")
		return c.Status().Update(ctx, g)
	}
	if a.Status != nil {
		g.Object["status"] = a.Status
		return c.Status().Update(ctx, g)
	}
	return nil
}

func newGroup(name string, spec map[string]any) *unstructured.Unstructured {
	g := &unstructured.Unstructured{Object: map[string]any{}}
	g.SetGroupVersionKind(v1.GroupVersion.WithKind("ElectionGroup"))
	g.SetNamespace("default")
	g.SetName(name)
	if spec != nil {
		g.Object["spec"] = spec
	}
	return g
}

// causes returns the causes of an API server's error with their fields, sorted.
func causes(t *testing.T, err error) []string {
	t.Helper()
	var rejected *apierrors.StatusError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &rejected):
		t.Fatal(err)
	case rejected.ErrStatus.Details == nil || len(rejected.ErrStatus.Details.Causes) == 0:
		return []string{err.Error()}
	}
	var all []string
	for _, cause := range rejected.ErrStatus.Details.Causes {
		if strings.HasPrefix(cause.Message, "Invalid value: null: some validation rules were not checked") {
			continue // The API server adds this cause if there are other ones.
		}
		all = append(all, cause.Field+": "+cause.Message)
	}
	slices.Sort(all)
	return all
}
