package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"
)

// maxErrors bounds the errors reported for one source.
const maxErrors = 100

// Errors are all mistakes in a file or a document, a line for each: SOURCE: FIELD: REASON. A field is a path such as
// groups[0].members[2].priority, without the numbers if the type is wrong. It is missing if the error concerns the
// source as a whole.
type Errors []string

func (e Errors) Error() string { return strings.Join(e, "\n") }

// checker checks a file or a document. It collects errors instead of stopping at the first one, so that users can
// correct all of them at once.
type checker struct {
	source string
	// inFile is true for a file, which has an address for each member, and nothing that only an operator knows.
	inFile bool
	errors Errors
	// omitted counts the errors beyond maxErrors.
	omitted int
}

func (c *checker) errorf(field, format string, args ...any) {
	if len(c.errors) == maxErrors {
		c.omitted++
		return
	}
	if field != "" {
		field += ": "
	}
	c.errors = append(c.errors, c.source+": "+field+fmt.Sprintf(format, args...))
}

// err returns the recorded errors as Errors, or nil if there are none.
func (c *checker) err() error {
	switch {
	case len(c.errors) == 0:
		return nil
	case c.omitted > 0:
		return append(c.errors, fmt.Sprintf("%s: and %d more errors", c.source, c.omitted))
	}
	return c.errors
}

// decode reads JSON and reports whether it has the right types.
func (c *checker) decode(text []byte, into any, options ...kjson.StrictOption) bool {
	mistakes, err := kjson.UnmarshalStrict(text, into, options...)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := strings.NewReplacer("Config.", "", "List.", "").Replace(wrong.Field) // These are embedded.
		c.errorf(field, "must be %s, got %s", kind(wrong.Type), truncate(word(wrong.Value), maxShown))
		return false
	} else if err != nil {
		c.errorf("", "%s", truncate(err.Error(), maxLine))
		return false
	}
	for _, mistake := range mistakes { // Its text is, for example, unknown field "groups[0].leader".
		what, field, _ := strings.Cut(mistake.Error(), " field ")
		c.errorf(truncate(strings.Trim(field, `"`), maxLine), "is %s", map[string]string{
			"unknown": "not the name of a field", "duplicate": "set more than once",
		}[what])
	}
	return true
}

// kind returns the type of a field as users know it.
func kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Struct:
		return "a mapping"
	}
	return "an integer of type " + t.String()
}

// word returns what YAML calls a type of JSON. An unsuitable number is shown.
func word(value string) string {
	switch value {
	case "object":
		return "a mapping"
	case "array":
		return "a list"
	case "bool":
		return "true or false"
	case "string", "number":
		return "a " + value
	}
	return strings.TrimPrefix(value, "number ")
}

// text checks a string.
func (c *checker) text(field, value string, check func(string) error) {
	if err := check(value); err != nil {
		c.errorf(field, "%s", err)
	}
}

// checkLength returns an error if a path or a URL is too long.
func checkLength(text string) error {
	if len(text) > maxText {
		return fmt.Errorf("must have at most %d bytes, got %d", maxText, len(text))
	}
	return nil
}

// number checks an integer.
func (c *checker) number(field string, value, least, most uint64) {
	if value < least || value > most {
		c.errorf(field, "must be an integer from %d to %d, got %d", least, most, value)
	}
}

// millis converts a number of milliseconds. A missing one is otherwise.
func (c *checker) millis(field string, number *int32, otherwise time.Duration, least, most int32) time.Duration {
	if number == nil {
		return otherwise
	}
	if *number < least || *number > most {
		c.errorf(field, "must be an integer from %d to %d, got %d", least, most, *number)
		return otherwise
	}
	return time.Duration(*number) * time.Millisecond
}

// given returns nil for a number that is missing, whose least value is above 0.
func given(number int32) *int32 {
	if number == 0 {
		return nil
	}
	return &number
}

// choose returns the value for which a word stands. A missing word is otherwise.
func choose[T any](c *checker, field, word string, otherwise T, words []string, values []T) T {
	if word == "" {
		return otherwise
	}
	if i := slices.Index(words, word); i >= 0 {
		return values[i]
	}
	last := len(words) - 1
	c.errorf(field, "must be %s or %s, got %q", strings.Join(words[:last], ", "), words[last], truncate(word, maxShown))
	return otherwise
}

const (
	// maxText is the maximum length of a path or a URL.
	maxText = 2048
	// maxShown is how much of a value an error shows, and maxLine how much of a text of others.
	maxShown = 60
	maxLine  = 300
)

// truncate shortens s, so that an error message is one line of readable length.
func truncate(s string, most int) string {
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, ""))
}
