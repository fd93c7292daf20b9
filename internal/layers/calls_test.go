package layers_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestCallsOfControllersGoDown: the files of controllers have an order, in which each file calls only those below it.
// So a reader who has understood a file doesn't come back to it. Functions and methods count whose names are unique.
func TestCallsOfControllersGoDown(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(root, "controllers", "*.go"))
	must.Succeed(t, err)
	files, definedIn := map[string]*ast.File{}, map[string][]string{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		must.Succeed(t, err)
		base := filepath.Base(name)
		files[base] = file
		for _, declaration := range file.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok {
				name := f.Name.Name
				if f.Recv != nil {
					name = "." + name
				}
				definedIn[name] = append(definedIn[name], base)
			}
		}
	}
	above := map[string]map[string]string{} // by the called file: its callers, and what they call
	for caller, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			called := ""
			switch n := n.(type) {
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.Ident); ok {
					called = f.Name
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && (x.Name == "r" || x.Name == "s") {
					called = "." + n.Sel.Name
				}
			}
			if in := definedIn[called]; len(in) == 1 && in[0] != caller {
				if above[in[0]] == nil {
					above[in[0]] = map[string]string{}
				}
				above[in[0]][caller] = called
			}
			return true
		})
	}
	if len(above) < 10 {
		t.Errorf("got calls of %d files, so the test finds few of them", len(above))
	}
	for removed := true; removed; { // Remove the files that nothing calls, from the top.
		removed = false
		for name := range files {
			if len(above[name]) == 0 {
				delete(files, name)
				for _, callers := range above {
					delete(callers, name)
				}
				removed = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		t.Errorf("%s is called from files that it calls, or that another such file calls: %v", name, above[name])
	}
}
