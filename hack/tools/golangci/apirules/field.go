package apirules

import (
	"go/ast"
	"go/types"
	"regexp"
	"strings"
)

var camelCase = regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)

type field struct {
	name    *ast.Ident
	expr    ast.Expr
	tag     string
	markers markers
	doc     *ast.CommentGroup
}

func (c checker) field(f field) {
	json, options, _ := strings.Cut(f.tag, ",")
	if !camelCase.MatchString(json) {
		c.Reportf(f.name.Pos(), "%s must have a json name in camelCase", f.name.Name)
		return
	}
	if c.isMeta(f.expr, "ObjectMeta") {
		return
	}
	if words := strings.Fields(f.doc.Text()); len(words) == 0 || words[0] != json {
		c.Reportf(f.name.Pos(), "the comment of %s must begin with its json name %q, because kubectl explain shows it",
			f.name.Name, json)
	}
	c.presence(f, options)
	c.value(f, c.TypesInfo.TypeOf(f.expr))
}

func (c checker) presence(f field, options string) {
	switch optional, required := f.markers.optional(), f.markers.required(); {
	case optional == required:
		c.Reportf(f.name.Pos(), "%s must have exactly one of +optional and +required", f.name.Name)
	case optional && !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero"):
		c.Reportf(f.name.Pos(), "%s is optional, so its json tag must have omitempty or omitzero", f.name.Name)
	}
}

func (c checker) value(f field, t types.Type) {
	if pointer, ok := types.Unalias(t).(*types.Pointer); ok {
		t = pointer.Elem()
	}
	if isDuration(t) {
		c.Reportf(f.name.Pos(), "%s is a duration, whose syntax is specific to Go: use an integer with the unit in its name",
			f.name.Name)
		return
	}
	switch u := t.Underlying().(type) {
	case *types.Basic:
		c.basic(f, t, u)
	case *types.Slice:
		c.list(f, u)
	case *types.Map:
		if !f.markers.any("MaxProperties") && !c.markersOf(t).any("MaxProperties") {
			c.Reportf(f.name.Pos(), "%s must have a +kubebuilder:validation:MaxProperties", f.name.Name)
		}
	}
}

func (c checker) basic(f field, t types.Type, basic *types.Basic) {
	switch {
	case basic.Kind() == types.String:
		if !f.markers.bounds() && !c.markersOf(t).bounds() {
			c.Reportf(f.name.Pos(), "%s must have a +kubebuilder:validation:MaxLength or an Enum", f.name.Name)
		}
	case basic.Kind() == types.Bool:
		c.Reportf(f.name.Pos(), "%s is a bool, which can't be extended by a third value: use an enum", f.name.Name)
	case basic.Kind() == types.Int32, basic.Kind() == types.Int64:
	case basic.Info()&(types.IsInteger|types.IsFloat) != 0:
		c.Reportf(f.name.Pos(), "%s must be an int32 or int64, got %s", f.name.Name, basic)
	}
}

func (c checker) list(f field, slice *types.Slice) {
	if basic, ok := slice.Elem().Underlying().(*types.Basic); ok && basic.Kind() == types.Byte {
		if !f.markers.bounds() {
			c.Reportf(f.name.Pos(), "%s must have a +kubebuilder:validation:MaxLength", f.name.Name)
		}
		return
	}
	if !f.markers.any("MaxItems", "k8s:maxItems") {
		c.Reportf(f.name.Pos(), "%s must have a +kubebuilder:validation:MaxItems", f.name.Name)
	}
	switch kind := f.markers["listType"]; kind {
	case "atomic", "set":
	case "map":
		if !f.markers.any("listMapKey") {
			c.Reportf(f.name.Pos(), "%s is a list of type map, so it must have a +listMapKey", f.name.Name)
		}
	default:
		c.Reportf(f.name.Pos(), "%s must have a +listType (atomic, set or map), which server-side apply uses for merging",
			f.name.Name)
	}
	basic, ok := slice.Elem().Underlying().(*types.Basic)
	if ok && basic.Kind() == types.String && !f.markers.boundsItems() && !c.markersOf(slice.Elem()).bounds() {
		c.Reportf(f.name.Pos(), "the strings in %s must have a +kubebuilder:validation:items:MaxLength", f.name.Name)
	}
}

// markersOf returns the markers of a type's declaration, if the type is declared in this package.
func (c checker) markersOf(t types.Type) markers {
	named, ok := types.Unalias(t).(*types.Named)
	if !ok || named.Obj().Pkg() != c.Pkg {
		return nil
	}
	return c.named[named.Obj().Name()]
}

func isDuration(t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Name() == "Duration"
}
