package layers_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestWalksNameFunctions: each function that the walks in CONTRIBUTING.md name exists.
func TestWalksNameFunctions(t *testing.T) {
	functions := map[string]bool{} // of PACKAGE.NAME
	for name := range sources(t) {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "internal/testing/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.SkipObjectResolution)
		must.Succeed(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				functions[path.Base(path.Dir(name))+"."+f.Name.Name] = true
			}
		}
	}
	text := string(must.ReadFile(t, filepath.Join(root, "CONTRIBUTING.md")))
	_, text, _ = strings.Cut(text, "Three walks through the code")
	text, _, _ = strings.Cut(text, "\n\nEach component")
	walks := strings.Split(text, "\n- **From ")[1:]
	must.Equalf(t, len(walks), 3, "walks in CONTRIBUTING.md")
	for _, walk := range walks {
		named := regexp.MustCompile("`([a-z]+\\.[A-Za-z]+)`").FindAllStringSubmatch(walk, -1)
		expect.AtLeastf(t, len(named), 7, "functions in the walk from %.40q", walk)
		for _, name := range named {
			expect.Equalf(t, functions[name[1]], true, "does %s of the walk from %.40q exist", name[1], walk)
		}
	}
}
