// Package purecore rejects code that makes an election irreproducible and that no other linter rejects: goroutines,
// channels and select statements in the core, and code that depends on the order of a map.
//
// It doesn't check tests. internal/layers restricts the imports of the core.
package purecore

import (
	"errors"
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"github.com/golangci/plugin-module-register/register"
	"golang.org/x/tools/go/analysis"
)

// Name is the linter's name in .golangci.yml and in //nolint.
const Name = "purecore"

func init() { register.Plugin(Name, New) }

// Settings has the paths of the packages to check. Each path includes all packages below it.
type Settings struct {
	Sequential []string `json:"sequential"` // without goroutines, channels and select statements
	Ordered    []string `json:"ordered"`    // without dependence on the order of a map
}

type plugin struct{ settings Settings }

// New creates the plugin from the settings in .golangci.yml.
func New(raw any) (register.LinterPlugin, error) {
	settings, err := register.DecodeSettings[Settings](raw)
	if err != nil {
		return nil, err
	}
	if len(settings.Sequential)+len(settings.Ordered) == 0 {
		return nil, errors.New("purecore: sequential or ordered must not be empty")
	}
	return plugin{settings}, nil
}

func (plugin) GetLoadMode() string { return register.LoadModeTypesInfo }

func (p plugin) BuildAnalyzers() ([]*analysis.Analyzer, error) {
	return []*analysis.Analyzer{{
		Name: Name,
		Doc:  "rejects concurrency and map order where runs must be replayable",
		Run:  p.run,
	}}, nil
}

func (p plugin) run(pass *analysis.Pass) (any, error) {
	c := checker{
		Pass:       pass,
		sequential: within(pass.Pkg.Path(), p.settings.Sequential),
		ordered:    within(pass.Pkg.Path(), p.settings.Ordered),
	}
	if !c.sequential && !c.ordered {
		return nil, nil
	}
	for _, file := range pass.Files {
		if strings.HasSuffix(pass.Fset.File(file.Pos()).Name(), "_test.go") {
			continue
		}
		c.file(file)
	}
	return nil, nil
}

func within(path string, roots []string) bool {
	for _, root := range roots {
		if path == root || strings.HasPrefix(path, root+"/") {
			return true
		}
	}
	return false
}

type checker struct {
	*analysis.Pass

	sequential, ordered bool
}

func (c checker) file(file *ast.File) {
	sorted := map[ast.Node]bool{} // iterators over a map that are arguments of a sort
	ast.Inspect(file, func(n ast.Node) bool {
		if c.sequential {
			c.concurrency(n)
		}
		if c.ordered {
			c.mapOrder(n, sorted)
		}
		return true
	})
}

func (c checker) concurrency(n ast.Node) {
	switch n := n.(type) {
	case *ast.GoStmt:
		c.Reportf(n.Pos(), "goroutine in the core: a step must be a function of its inputs")
	case *ast.SelectStmt:
		c.Reportf(n.Pos(), "select in the core: a step must be a function of its inputs")
	case *ast.ChanType:
		c.Reportf(n.Pos(), "channel in the core: pass inputs as arguments of Step and return outputs")
	case *ast.SendStmt:
		c.Reportf(n.Pos(), "send in the core: return outputs as the result of Step")
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			c.Reportf(n.Pos(), "receive in the core: pass inputs as arguments of Step")
		}
	}
}

func (c checker) mapOrder(n ast.Node, sorted map[ast.Node]bool) {
	switch n := n.(type) {
	case *ast.RangeStmt:
		t := c.TypesInfo.TypeOf(n.X)
		if t == nil {
			return
		}
		if _, isMap := t.Underlying().(*types.Map); isMap {
			c.Reportf(n.Pos(), "the order of a range over a map differs between runs: "+
				"use slices.Sorted(maps.Keys(m)) or a sorted slice")
		}
	case *ast.CallExpr:
		switch name := c.callee(n); name {
		case "slices.Sorted", "slices.SortedFunc", "slices.SortedStableFunc":
			if len(n.Args) > 0 {
				sorted[ast.Unparen(n.Args[0])] = true
			}
		case "maps.Keys", "maps.Values", "maps.All":
			if !sorted[n] {
				c.Reportf(n.Pos(), "the order of %s differs between runs: pass it directly to slices.Sorted", name)
			}
		}
	}
}

// callee returns the name of a called function of another package as package.Function, or "".
func (c checker) callee(call *ast.CallExpr) string {
	fun := ast.Unparen(call.Fun)
	if index, ok := fun.(*ast.IndexExpr); ok { // explicitly instantiated
		fun = index.X
	}
	selector, ok := fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	function, ok := c.TypesInfo.Uses[selector.Sel].(*types.Func)
	if !ok || function.Pkg() == nil || function.Signature().Recv() != nil {
		return ""
	}
	return function.Pkg().Path() + "." + function.Name()
}
