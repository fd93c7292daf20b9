package expect

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

// fakeT records the messages of a test.
type fakeT struct {
	testing.TB

	messages []string
}

func (*fakeT) Helper() {}

func (f *fakeT) Error(args ...any) { f.messages = append(f.messages, fmt.Sprint(args...)) }

func (f *fakeT) Errorf(format string, args ...any) { f.Error(fmt.Sprintf(format, args...)) }

func TestOnlyDifferencesAreReported(t *testing.T) {
	wrapped := fmt.Errorf("cannot read: %w", io.EOF)
	for want, check := range map[string]func(t testing.TB, differ bool){
		"got 2, want 3":         func(t testing.TB, differ bool) { Equal(t, 2, 2+number(differ)) },
		`a: got "x", want "x1"`: func(t testing.TB, differ bool) { Equalf(t, "x", "x"+text(differ), "%s", "a") },
		"a: got \nx\ny\n, want \"1\"": func(t testing.TB, differ bool) {
			if differ {
				Equalf(t, "x\ny", "1", "a")
			}
		},
		"a: got [2], want [3]": func(t testing.TB, differ bool) { EqualSlicesf(t, []int{2}, []int{2 + number(differ)}, "a") },
		"a: got map[1:2], want map[1:3]": func(t testing.TB, differ bool) {
			DeepEqualf(t, map[int]int{1: 2}, map[int]int{1: 2 + number(differ)}, "a")
		},
		"a: got 1: [x], want 2":        func(t testing.TB, differ bool) { Lenf(t, []string{"x"}, 1+number(differ), "a") },
		"a: got 3, want at most 2":     func(t testing.TB, differ bool) { AtMostf(t, 2+number(differ), 2, "a") },
		"a: got 2, want at least 3":    func(t testing.TB, differ bool) { AtLeastf(t, 2, 2+number(differ), "a") },
		`a: got "xy", want in it "y1"`: func(t testing.TB, differ bool) { Containsf(t, "xy", "y"+text(differ), "a") },
		`a: got EOF, want an error with "EO1"`: func(t testing.TB, differ bool) {
			ErrorContainsf(t, io.EOF, "EO"+text(differ), "a")
		},
		`a: got <nil>, want an error with "b"`: func(t testing.TB, differ bool) {
			if differ {
				ErrorContainsf(t, nil, "b", "a")
			}
		},
		"a: got cannot read: EOF, want closed": func(t testing.TB, differ bool) {
			ErrorIsf(t, wrapped, map[bool]error{false: io.EOF, true: errors.New("closed")}[differ], "a")
		},
		"EOF":    func(t testing.TB, differ bool) { Succeed(t, map[bool]error{true: io.EOF}[differ]) },
		"a: EOF": func(t testing.TB, differ bool) { Succeedf(t, map[bool]error{true: io.EOF}[differ], "a") },
	} {
		f := &fakeT{}
		if check(f, false); len(f.messages) > 0 {
			t.Errorf("%s: got messages %q of the same values, want none", want, f.messages)
		}
		if check(f, true); len(f.messages) != 1 || f.messages[0] != want {
			t.Errorf("got messages %q, want %q", f.messages, want)
		}
	}
}

func number(differ bool) int { return len(text(differ)) }

func text(differ bool) string {
	if differ {
		return "1"
	}
	return ""
}
