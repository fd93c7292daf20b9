package v1_test

import (
	"slices"
	"testing"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

func TestGroupNames(t *testing.T) {
	for annotation, want := range map[string][]string{
		"":                       nil,
		" \t\n":                  nil,
		"ledger":                 {"ledger"},
		"ledger,mail":            {"ledger", "mail"},
		" ledger ,\tmail\n":      {"ledger", "mail"},
		"mail,ledger":            {"mail", "ledger"},
		"ledger,":                {"ledger", ""},
		",ledger":                {"", "ledger"},
		"ledger, ,mail":          {"ledger", "", "mail"},
		",":                      {"", ""},
		"ledger,ledger":          {"ledger", "ledger"},
		"Not a name;ledger,mail": {"Not a name;ledger", "mail"},
	} {
		if got := slices.Collect(v1.GroupNames(annotation)); !slices.Equal(got, want) {
			t.Errorf("GroupNames(%q): got %q, want %q", annotation, got, want)
		}
	}
}

func TestGroupNamesStopsWithItsCaller(t *testing.T) {
	for name := range v1.GroupNames("ledger,mail") {
		if name != "ledger" {
			t.Errorf("got %q after the caller stopped", name)
		}
		break
	}
}
