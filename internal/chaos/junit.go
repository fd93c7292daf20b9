package chaos

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string    `xml:"classname,attr"`
	Name    string    `xml:"name,attr"`
	Seconds string    `xml:"time,attr,omitempty"`
	Failure *junitWhy `xml:"failure"`
	Skipped *junitWhy `xml:"skipped"`
}

type junitWhy struct {
	Message string `xml:"message,attr"`
}

// WriteJUnit writes the result as JUnit XML, with a case for each fault and each budget that was exceeded.
func (r *Result) WriteJUnit(w io.Writer) error {
	title, _ := r.about()
	suite := junitSuite{Name: title}
	add := func(c junitCase, failures []string) {
		if len(failures) > 0 {
			c.Failure = &junitWhy{strings.Join(failures, "\n")}
			suite.Failures++
		}
		suite.Cases = append(suite.Cases, c)
	}
	problems := map[int][]string{}
	for _, v := range r.Violations {
		problems[v.Fault] = append(problems[v.Fault], v.Problem.String())
	}
	if len(problems[0]) > 0 {
		name := "before the first fault"
		if r.ObservedMillis > 0 {
			name = "at any time"
		}
		add(junitCase{Class: title, Name: name}, problems[0])
	}
	for i := range r.Faults {
		f := &r.Faults[i]
		c := junitCase{Class: title, Name: fmt.Sprintf("fault %d: %s", f.Number, f.Kind)}
		if f.Settled != nil {
			c.Seconds = fmt.Sprintf("%.3f", *f.Settled/1000)
		}
		if f.Refused != "" {
			c.Skipped = &junitWhy{f.Refused}
			suite.Skipped++
		}
		add(c, problems[f.Number])
	}
	for _, exceeded := range r.Exceeded {
		add(junitCase{Class: title, Name: "budget"}, []string{exceeded})
	}
	suite.Tests = len(suite.Cases)
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(suite); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}
