package apirules

import (
	"go/ast"
	"strings"
)

// markers has the markers of a comment: its lines that begin with a plus sign. The key is the name, the value is the text
// after the equals sign.
type markers map[string]string

func readMarkers(doc *ast.CommentGroup) markers {
	found := markers{}
	if doc == nil {
		return found
	}
	for _, comment := range doc.List {
		text := strings.TrimSpace(strings.TrimPrefix(comment.Text, "//"))
		if !strings.HasPrefix(text, "+") {
			continue
		}
		name, value, _ := strings.Cut(text[1:], "=")
		if short, ok := strings.CutPrefix(name, "kubebuilder:validation:"); ok {
			name = short
		}
		found[name] = value
	}
	return found
}

func (m markers) any(names ...string) bool {
	for _, name := range names {
		if _, ok := m[name]; ok {
			return true
		}
	}
	return false
}

// optional and required accept the spellings of both Kubernetes and kubebuilder.
func (m markers) optional() bool { return m.any("optional", "Optional", "k8s:optional") }
func (m markers) required() bool { return m.any("required", "Required", "k8s:required") }

// bounds reports whether the length of a string has a bound, possibly by an enum.
func (m markers) bounds() bool { return m.any("MaxLength", "Enum", "k8s:maxLength", "k8s:enum") }

// boundsItems reports the same for the strings in a list.
func (m markers) boundsItems() bool { return m.any("items:MaxLength", "items:Enum") }
