package v1_test

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
)

// attempt is something that a user or the operator tries, as files in
// testdata/rules have it, and every complaint of the API server about it. None
// means that it is accepted. The files are templates, for the sake of attempts
// that are long.
type attempt struct {
	Case string `json:"case"`
	// Name is the group's, if that matters.
	Name string `json:"name"`
	// From and FromStatus are what was there before.
	From       map[string]any `json:"from"`
	FromStatus map[string]any `json:"fromStatus"`
	Spec       map[string]any `json:"spec"`
	Status     map[string]any `json:"status"`
	// NoStatus takes the status away.
	NoStatus bool     `json:"noStatus"`
	Refused  []string `json:"refused"`
}

// long are what makes a file's lines longer than anybody would read.
var long = template.FuncMap{
	"letters": func(n int) string { return strings.Repeat("a", n) },
	// many are n entries of a list, each with its number in the place of #.
	"many": func(n int, entry string) string {
		var all []string
		for i := range n {
			all = append(all, strings.ReplaceAll(entry, "#", strconv.Itoa(i)))
		}
		return strings.Join(all, ", ")
	},
}

var show = flag.Bool("show", false, "print what the API server says to each case")

func attempts(t *testing.T) []attempt {
	t.Helper()
	files, err := filepath.Glob("testdata/rules/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no test data", err)
	}
	var all []attempt
	for _, file := range files {
		page, err := template.New(filepath.Base(file)).Funcs(long).ParseFiles(file)
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		if err := page.Execute(&text, nil); err != nil {
			t.Fatal(err)
		}
		var some []attempt
		if err := yaml.UnmarshalStrict(text.Bytes(), &some); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for i := range some {
			some[i].Case = strings.TrimSuffix(filepath.Base(file), ".yaml") + "/" + some[i].Case
		}
		all = append(all, some...)
	}
	return all
}

func TestRules(t *testing.T) {
	c := connect(t)
	for i, a := range attempts(t) {
		t.Run(a.Case, func(t *testing.T) {
			got := complaints(t, try(t, c, fmt.Sprint("case-", i), &a))
			if *show {
				t.Log(strings.Join(got, "\n"))
			}
			slices.Sort(a.Refused)
			if !slices.Equal(got, a.Refused) {
				t.Errorf("the API server says\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(a.Refused, "\n  "))
			}
		})
	}
}

// try does what a says, and returns what became of its last step. What leads
// there must be accepted.
func try(t *testing.T, c client.Client, name string, a *attempt) error {
	t.Helper()
	ctx := t.Context()
	before := a.From
	if before == nil {
		before = a.Spec
	}
	g := group(cmp.Or(a.Name, name), before)
	if err := c.Create(ctx, g); err != nil {
		if a.From != nil || a.Status != nil {
			t.Fatal("what was there before is refused:", complaints(t, err))
		}
		return err
	}
	t.Cleanup(func() {
		if err := c.Delete(context.WithoutCancel(ctx), group(g.GetName(), nil)); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	if a.FromStatus != nil {
		g.Object["status"] = a.FromStatus
		if err := c.Status().Update(ctx, g); err != nil {
			t.Fatal("the status before is refused:", complaints(t, err))
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

func group(name string, spec map[string]any) *unstructured.Unstructured {
	g := &unstructured.Unstructured{Object: map[string]any{}}
	g.SetGroupVersionKind(v1.GroupVersion.WithKind("ElectionGroup"))
	g.SetNamespace("default")
	g.SetName(name)
	if spec != nil {
		g.Object["spec"] = spec
	}
	return g
}

// complaints are the API server's, each with its field, sorted.
func complaints(t *testing.T, err error) []string {
	t.Helper()
	var refused *apierrors.StatusError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &refused):
		t.Fatal(err)
	case refused.ErrStatus.Details == nil || len(refused.ErrStatus.Details.Causes) == 0:
		return []string{err.Error()}
	}
	var all []string
	for _, cause := range refused.ErrStatus.Details.Causes {
		if strings.HasPrefix(cause.Message, "Invalid value: null: some validation rules were not checked") {
			continue // which the API server adds where others of its complaints come first
		}
		all = append(all, cause.Field+": "+cause.Message)
	}
	slices.Sort(all)
	return all
}
