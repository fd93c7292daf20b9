package v1

import (
	"fmt"
	"strings"
	"unicode"
)

// MaxUserName is the length in bytes of the longest name of a user in a status.
const MaxUserName = 256

// FormatStepDownBy returns the value of AnnotationStepDownBy.
func FormatStepDownBy(group string, term int64, user string) string {
	return fmt.Sprintf("%s/%d %s", group, term, user)
}

// StepDownBy returns the user who asked the coordinator of a group in a term to step down, or "" if the
// annotations of its pod name none.
func StepDownBy(annotations map[string]string, group string, term int64) string {
	user, found := strings.CutPrefix(annotations[AnnotationStepDownBy], FormatStepDownBy(group, term, ""))
	if !found || len(user) > MaxUserName || strings.ContainsFunc(user, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return ""
	}
	return user
}
