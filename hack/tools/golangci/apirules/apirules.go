// Package apirules checks the Go types of a Kubernetes API for conventions that keep the API compatible and safe:
//
//   - Every field declares whether it is optional or required.
//   - Every list and string has a bound. Without one, the API server may reject CEL rules as too costly, and objects may
//     become too large to be stored.
//   - No field has a type that causes problems for other languages or for later versions.
//
// It is a small substitute for kube-api-linter.
package apirules

import (
	"errors"
	"go/ast"
	"go/types"
	"reflect"
	"strings"

	"github.com/golangci/plugin-module-register/register"
	"golang.org/x/tools/go/analysis"
)

// Name is the linter's name in .golangci.yml and in //nolint.
const Name = "apirules"

const metaPackage = "k8s.io/apimachinery/pkg/apis/meta/v1"

func init() { register.Plugin(Name, New) }

// Settings has the paths of the packages to check. Each path includes all packages below it.
type Settings struct {
	Packages []string `json:"packages"`
}

type plugin struct{ settings Settings }

// New creates the plugin from the settings in .golangci.yml.
func New(raw any) (register.LinterPlugin, error) {
	settings, err := register.DecodeSettings[Settings](raw)
	if err != nil {
		return nil, err
	}
	if len(settings.Packages) == 0 {
		return nil, errors.New("apirules: packages must not be empty")
	}
	return plugin{settings}, nil
}

func (plugin) GetLoadMode() string { return register.LoadModeTypesInfo }

func (p plugin) BuildAnalyzers() ([]*analysis.Analyzer, error) {
	return []*analysis.Analyzer{{
		Name: Name,
		Doc:  "checks the fields of API types: optional or required, bounded, and of portable types",
		Run:  p.run,
	}}, nil
}

func (p plugin) run(pass *analysis.Pass) (any, error) {
	if !p.covers(pass.Pkg.Path()) {
		return nil, nil
	}
	c := checker{Pass: pass, named: map[string]markers{}}
	var structs []*ast.StructType
	for _, file := range pass.Files {
		if strings.HasSuffix(pass.Fset.File(file.Pos()).Name(), "_test.go") {
			continue
		}
		for spec, doc := range typeSpecs(file) {
			c.named[spec.Name.Name] = readMarkers(doc)
			if s, ok := spec.Type.(*ast.StructType); ok {
				structs = append(structs, s)
			}
		}
	}
	for _, s := range structs {
		c.structType(s)
	}
	return nil, nil
}

func (p plugin) covers(path string) bool {
	for _, root := range p.settings.Packages {
		if path == root || strings.HasPrefix(path, root+"/") {
			return true
		}
	}
	return false
}

// typeSpecs returns an iterator over the types that a file declares, with their comments.
func typeSpecs(file *ast.File) func(yield func(*ast.TypeSpec, *ast.CommentGroup) bool) {
	return func(yield func(*ast.TypeSpec, *ast.CommentGroup) bool) {
		for _, decl := range file.Decls {
			general, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				t, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				doc := t.Doc
				if doc == nil {
					doc = general.Doc
				}
				if !yield(t, doc) {
					return
				}
			}
		}
	}
}

type checker struct {
	*analysis.Pass

	named map[string]markers // by the name of the type in this package
}

func (c checker) structType(s *ast.StructType) {
	for _, f := range s.Fields.List {
		if len(f.Names) == 0 && c.isMeta(f.Type, "ListMeta") {
			return // a list of objects, which the API server creates: its items have no bound
		}
	}
	for _, f := range s.Fields.List {
		for _, name := range f.Names {
			if name.IsExported() {
				c.field(field{name: name, expr: f.Type, tag: jsonTag(f), markers: readMarkers(f.Doc), doc: f.Doc})
			}
		}
	}
}

func (c checker) isMeta(expr ast.Expr, names ...string) bool {
	named, ok := types.Unalias(c.TypesInfo.TypeOf(expr)).(*types.Named)
	if !ok || named.Obj().Pkg() == nil || named.Obj().Pkg().Path() != metaPackage {
		return false
	}
	for _, name := range names {
		if named.Obj().Name() == name {
			return true
		}
	}
	return false
}

func jsonTag(f *ast.Field) string {
	if f.Tag == nil {
		return ""
	}
	return reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json")
}
