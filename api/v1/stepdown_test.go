package v1

import (
	"strings"
	"testing"
)

func TestStepDownBy(t *testing.T) {
	long := strings.Repeat("a", MaxUserName)
	for name, c := range map[string]struct{ value, want string }{
		"a user":                {FormatStepDownBy("ledger", 7, "alice@example.org"), "alice@example.org"},
		"a user with a space":   {FormatStepDownBy("ledger", 7, "CN=Alice Example"), "CN=Alice Example"},
		"the longest name":      {FormatStepDownBy("ledger", 7, long), long},
		"too long":              {FormatStepDownBy("ledger", 7, long+"a"), ""},
		"another term":          {FormatStepDownBy("ledger", 77, "alice"), ""},
		"another group":         {FormatStepDownBy("ledgers", 7, "alice"), ""},
		"no user":               {"ledger/7 ", ""},
		"escapes of a terminal": {"ledger/7 \x1b[2Jalice", ""},
		"nothing":               {"", ""},
	} {
		if got := StepDownBy(map[string]string{AnnotationStepDownBy: c.value}, "ledger", 7); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
