package inject

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// Options are settings of the agent's container, by name. For the one named uid, for
// example, the operator has the flag --agent-uid, and a pod the annotation
// conclave.dev/agent-uid, which takes precedence. An option that isn't set has its default.
type Options map[string]string

// The names of the options. Those for resources are the name of the resource, followed by one of the suffixes.
const (
	optionUID      = "uid"
	optionLogLevel = "log-level"
	suffixRequest  = "-request"
	suffixLimit    = "-limit"
)

// Values that aren't a number.
const (
	noLimit    = "none"
	inheritUID = "inherit"
	// defaultLogLevel is also that of an agent without the variable.
	defaultLogLevel = "info"
)

// option defines an option.
type option struct {
	name, preset, usage string
	// rule completes the sentence "the value must be ...".
	rule  string
	valid func(value string) bool
}

// minMemoryLimit is little more than what an idle agent uses.
const minMemoryLimit = "32Mi"

var allOptions = []option{
	{"cpu-request", "10m", "CPU that agents request", "an amount of CPU, such as 10m", isAmount("1m")},
	{"cpu-limit", noLimit, "CPU limit of agents, or none", "an amount of CPU, such as 100m, or none", isAmountOrNone(
		"1m")},
	{"memory-request", "32Mi", "memory that agents request", "an amount of memory of at least 1Mi, such as 32Mi", isAmount(
		"1Mi")},
	{
		"memory-limit", "64Mi", "memory limit of agents, or none",
		"an amount of memory of at least " + minMemoryLimit + ", such as 64Mi, or none", isAmountOrNone(minMemoryLimit),
	},
	{
		optionUID, "65532", "user and group ID of agents; inherit leaves both to the pod and the platform",
		"a user ID from 1 to 2147483647, or inherit",
		func(value string) bool { return value == inheritUID || userID(value) > 0 },
	},
	{
		optionLogLevel, defaultLogLevel, "log level of agents: " + logLevels, logLevels,
		func(value string) bool {
			return slices.Contains([]string{"debug", defaultLogLevel, "warn", "error"}, value)
		},
	},
}

const logLevels = "debug, info, warn or error"

// OptionAnnotations returns the annotations of pods that set an option.
func OptionAnnotations() []string {
	var all []string
	for i := range allOptions {
		all = append(all, allOptions[i].annotation())
	}
	return all
}

// flagPrefix is the beginning of the names of the flags that set options.
const flagPrefix = "agent-"

// Flag is the flag of an option, as package pflag expects it.
type Flag struct {
	Name, Usage string
	options     Options
	option      *option
}

func (f *Flag) String() string { return cmp.Or(f.options[f.option.name], f.option.preset) }

// Type is the type in help texts.
func (f *Flag) Type() string { return "string" }

// Set sets the option.
func (f *Flag) Set(value string) error {
	if !f.option.valid(value) {
		return fmt.Errorf("it must be %s", f.option.rule)
	}
	f.options[f.option.name] = value
	return nil
}

// Flags returns a flag for each option.
func (o Options) Flags() []*Flag {
	var all []*Flag
	for i := range allOptions {
		option := &allOptions[i]
		all = append(all, &Flag{flagPrefix + option.name, option.usage, o, option})
	}
	return all
}

// Check checks options that depend on each other.
func (o Options) Check() error {
	for _, name := range resources {
		if _, err := (layers{o}).amount(string(name), "--"+flagPrefix); err != nil {
			return err
		}
	}
	return nil
}

// options parses the annotations of a pod that set an option.
func (m *podMetadata) options() (Options, error) {
	found := Options{}
	for i := range allOptions {
		key := allOptions[i].annotation()
		if _, ok := m.Metadata.Annotations[key]; !ok {
			continue
		}
		value, err := m.annotation(key)
		if err == nil {
			err = allOptions[i].check(value)
		}
		if err != nil {
			return nil, err
		}
		found[allOptions[i].name] = value
	}
	return found, nil
}

// CheckAnnotations returns what is wrong with the annotations of a pod that set an option.
func CheckAnnotations(annotations map[string]string) (problems []error) {
	for i := range allOptions {
		if value, set := annotations[allOptions[i].annotation()]; set {
			if err := allOptions[i].check(value); err != nil {
				problems = append(problems, err)
			}
		}
	}
	return problems
}

// annotation is that of pods that set the option.
func (o *option) annotation() string { return v1.AnnotationAgentPrefix + o.name }

// check checks the value of the annotation.
func (o *option) check(value string) error {
	if o.valid(value) {
		return nil
	}
	return fmt.Errorf("annotation %s must be %s, got %.80q", o.annotation(), o.rule, value)
}

func isAmount(least string) func(string) bool {
	smallest := resource.MustParse(least)
	return func(value string) bool {
		amount, err := resource.ParseQuantity(value)
		return err == nil && amount.Cmp(smallest) >= 0
	}
}

func isAmountOrNone(least string) func(string) bool {
	valid := isAmount(least)
	return func(value string) bool { return value == noLimit || valid(value) }
}

// userID returns 0 if the value isn't a valid ID, or if it is that of root.
func userID(value string) int64 {
	id, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return 0
	}
	return int64(id)
}
