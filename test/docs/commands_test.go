package docs

import (
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	conclavev1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/testing/documents"
	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// product is what commands in documents name. Tests in cmd check the commands and flags of the programs there.
type product struct {
	t                *testing.T
	makefile         string
	targets, release []string       // release has other words, too
	values, group    map[string]any // of the chart; the schema of an ElectionGroup
	resources        []string
}

func newProduct(t *testing.T) *product {
	t.Helper()
	p := &product{t: t, makefile: read(t, filepath.Join(root, "Makefile"))}
	// It fails, because help isn't a file.
	database, _ := exec.CommandContext(t.Context(), "make", "-C", root, "--print-data-base", "--question", "help").Output()
	p.targets = all(`(?m)^([a-z][\w-]*):`, string(database))
	for _, word := range all(`"([^"\n]+)"`, p.sources("hack/release")) {
		p.release = append(p.release, word, path.Base(word)+".tar") // Images are in the list as their folders.
	}
	for _, sample := range files(t, "config/samples", ".yaml") {
		p.release = append(p.release, "sample-"+filepath.Base(sample))
	}
	var crd struct {
		Spec struct {
			Names struct {
				Plural, Singular string
				ShortNames       []string
			}
			Versions []struct {
				Schema struct{ OpenAPIV3Schema map[string]any }
			}
		}
	}
	for name, into := range map[string]any{
		"charts/conclave/values.yaml": &p.values, "config/crd/bases/conclave.dev_electiongroups.yaml": &crd,
	} {
		must.Succeed(t, yaml.Unmarshal([]byte(read(t, filepath.Join(root, name))), into))
	}
	p.resources = append(crd.Spec.Names.ShortNames, crd.Spec.Names.Plural, crd.Spec.Names.Singular)
	p.group = crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	return p
}

// all returns what the group of a pattern matches.
func all(pattern, text string) (found []string) {
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	return found
}

// sources returns the code in a folder.
func (p *product) sources(folder string) (text string) {
	for _, file := range files(p.t, folder, ".go") {
		text += read(p.t, file)
	}
	return text
}

var field = regexp.MustCompile(`^\.?((?:spec|status)\.[\w.\[\]]+)`)

// problem returns why a command doesn't work, or "".
func (p *product) problem(c documents.Command) string {
	for _, word := range c.Words {
		for part := range strings.FieldsFuncSeq(word, func(r rune) bool { return strings.ContainsRune("=:,|", r) }) {
			if problem := p.file(strings.TrimRight(strings.TrimPrefix(part, "./"), "./")); problem != "" {
				return problem
			}
		}
	}
	switch program, arguments := c.Words[0], c.Words[1:]; {
	case program == "make":
		return p.make(arguments)
	case program == "helm":
		return p.helm(arguments)
	case program == "go":
		return p.goCommand(arguments)
	case program == "kubectl" && len(arguments) > 0 && arguments[0] != "conclave":
		return p.kubectl(arguments)
	case field.MatchString(program):
		return p.field(program)
	}
	return ""
}

var (
	folders = regexp.MustCompile(
		`^(\.github|api|charts|clients?|cmd|config|controllers|docs|examples|hack|internal|test)/`)
	written = regexp.MustCompile(`^(docs/results/|examples/kubernetes/out$)`) // by commands
	// by users: variables, names in capitals, versions
	replaced = regexp.MustCompile(`\$\w+|\.\.\.|[A-Z]{2,}|v?\d+\.\d+\.\d+`)
)

func (p *product) file(name string) string {
	pattern := replaced.ReplaceAllString(name, "*")
	if file, ok := strings.CutPrefix(pattern, "dist/release/"); ok {
		if !slices.ContainsFunc(p.release, func(known string) bool { match, _ := path.Match(file, known); return match }) {
			return "a release has no file " + name
		}
	}
	if !folders.MatchString(name) || written.MatchString(name) {
		return ""
	}
	if found, _ := filepath.Glob(filepath.Join(root, pattern)); len(found) == 0 {
		return "there is no " + name
	}
	return ""
}

func (p *product) make(arguments []string) string {
	for _, argument := range arguments {
		variable, value, assigned := strings.Cut(argument, "=")
		switch {
		case !assigned && !strings.HasPrefix(argument, "-") && !slices.Contains(p.targets, argument):
			return "the Makefile has no target " + argument
		case assigned && !regexp.MustCompile(`\b`+variable+`\b`).MatchString(p.makefile):
			return "the Makefile has no variable " + variable
		case variable == "ARGS": // the flags of the program in the recipe
			_, recipe, _ := strings.Cut(p.makefile, "\n"+arguments[0]+":")
			recipe = strings.ReplaceAll(recipe, "hack/kind/run", "") // It runs the program.
			folder := regexp.MustCompile(`(hack|test)/[\w-]+`).FindString(recipe)
			if problem := p.goCommand(append([]string{"./" + folder}, strings.Fields(value)...)); problem != "" {
				return problem
			}
		}
	}
	return ""
}

func (p *product) helm(arguments []string) string {
	for i, argument := range arguments {
		if argument != "--set" {
			continue
		}
		for key := range strings.SplitSeq(arguments[i+1], ",") {
			key, _, _ = strings.Cut(key, "=")
			value := any(p.values)
			for part := range strings.SplitSeq(key, ".") {
				level, _ := value.(map[string]any)
				if value = level[part]; value == nil {
					return "the chart has no value " + key
				}
			}
		}
	}
	return ""
}

var (
	// -rewrite is datadriven's
	goFlags = strings.Fields("C args bench benchtime count fuzz fuzztime o race rewrite run short tags tool v")
	defined = `\.(?:Func|Var|\w*(?:String|Bool|Int|Float|Duration)\w*)\((?:&?[\w.]+, )?"([\w-]+)"`
)

// goCommand checks which tests a command selects, and that the packages define all other flags.
func (p *product) goCommand(arguments []string) string {
	var sources string
	for _, argument := range arguments {
		if folder := strings.Trim(argument, "./"); strings.HasPrefix(argument, "./") && folder != "" {
			sources += p.sources(folder)
		}
	}
	flags := append(all(defined, sources), goFlags...)
	for i, argument := range arguments {
		switch flag := strings.TrimLeft(argument, "-"); {
		case sources == "" || flag == argument || flag == "":
		case !slices.Contains(flags, flag):
			return "these packages have no flag " + argument
		case slices.Contains([]string{"run", "bench", "fuzz"}, flag):
			name, _, _ := strings.Cut(strings.Trim(arguments[i+1], "^$"), "/")
			if !regexp.MustCompile(`(?m)^func (Test|Benchmark|Fuzz)?\w*` + name).MatchString(sources) {
				return "these packages have no test " + name
			}
		}
	}
	return ""
}

var verbs = strings.Fields("-- annotate apply attach create delete describe drain exec explain get kustomize label " +
	"logs patch port-forward rollout run scale taint uncordon wait")

func (p *product) kubectl(arguments []string) string {
	if !slices.ContainsFunc(arguments, func(argument string) bool { return slices.Contains(verbs, argument) }) {
		return fmt.Sprintf("this command must have one of the verbs %q", verbs)
	}
	line := " " + strings.Join(arguments, " ")
	for _, name := range all(` ((?:eg|election\w*)\b)`, line) {
		if !slices.Contains(p.resources, name) {
			return fmt.Sprintf("there is no resource %s, want one of %q", name, p.resources)
		}
		for _, name := range all(`(\.(?:spec|status)\.[\w.]+)`, line) {
			if problem := p.field(name); problem != "" {
				return problem
			}
		}
	}
	return ""
}

// field checks that ElectionGroups have a field.
func (p *product) field(name string) string {
	schema := p.group
	for part := range strings.SplitSeq(field.FindStringSubmatch(name)[1], ".") {
		if items, ok := schema["items"].(map[string]any); ok {
			schema = items
		}
		properties, _ := schema["properties"].(map[string]any)
		if schema, _ = properties[strings.TrimSuffix(part, "[]")].(map[string]any); schema == nil {
			return "an ElectionGroup has no field " + name
		}
	}
	return ""
}

func TestCommandsNameWhatExists(t *testing.T) {
	p := newProduct(t)
	for _, c := range documents.Commands(t) {
		if problem := p.problem(c); problem != "" {
			t.Errorf("%s: %s", c, problem)
		}
	}
}

func TestBrokenCommandsAreDetected(t *testing.T) {
	p := newProduct(t)
	for line, broken := range map[string]bool{
		"make test-all FAULTS=9": false, "make tests": true, "make test FAULT=9": true, "sudo make -s envtest-assets": false,
		`make chaos ARGS="-kinds pod"`: false, `make chaos ARGS="-kind pod"`: true,
		`make bench-agent ARGS="--agents 5"`: false, `make bench-agent ARGS="--kinds pod"`: true,
		"helm upgrade conclave conclave.tgz --set agent.image.tag=$TAG,replicas=1": false,
		"helm upgrade conclave conclave.tgz --set image.tags=v1":                   true,
		"go test ./test/docs -run 'TestBroken/links'":                              false,
		"go test ./test/docs -run TestNothing":                                     true,
		"go test ./test/docs -kinds pod":                                           true,
		"go test ./test/chaos/... -kinds pod":                                      false, "go run ./hack/benches up": true,
		"kubectl -n bank get eg": false, "kubectl get electiongroups.conclave.dev": false, "kubectl get elections": true,
		"kubectl show pods": true,
		"kubectl get eg ledger -o jsonpath='{.status.coordinator.pod}'": false,
		"kubectl get eg ledger -o jsonpath='{.status.leader}'":          true,
		"x && kubectl apply -k config/grafana | cat":                    false,
		"x && kubectl apply -k config/grafanas | cat":                   true,
		"x --file=config/nothing.yaml":                                  true,
		"kubectl apply -f dist/release/sample-council.yaml":             false,
		"kubectl apply -f dist/release/sample-nothing.yaml":             true,
		"helm install conclave dist/release/conclave-9.9.9.tgz":         false,
		"skopeo copy oci-archive:dist/release/$image.tar x":             false, "x dist/release/worker.zip": true,
		"x dist/release/nothing.tar": true,
		"status.processes[].node":    false, "spec.safety.mode: Strict": false, "spec.safety.modes": true,
		"status.processes.pods": true,
	} {
		problem := ""
		for _, c := range documents.Parse("    " + line) {
			problem += p.problem(c)
		}
		if (problem != "") != broken {
			t.Errorf("%s: got problem %q, want one: %t", line, problem, broken)
		}
	}
}

// TestSamplesHaveFieldsThatExist: the API server drops others, with a warning.
func TestSamplesHaveFieldsThatExist(t *testing.T) {
	found := map[string]int{}
	for _, path := range files(t, "", ".md") {
		for _, block := range all("(?ms)^ *```yaml\n(.*?)^ *```$", read(t, path)) {
			for sample := range strings.SplitSeq(block, "\n---\n") {
				kind := strings.Join(all(`(?m)^ *kind: (\w+)$`, sample), " ")
				object := map[string]any{
					"ElectionGroup": &conclavev1.ElectionGroup{}, "Deployment": &appsv1.Deployment{},
					"StatefulSet": &appsv1.StatefulSet{}, "NetworkPolicy": &networkingv1.NetworkPolicy{},
				}[kind]
				if object == nil {
					continue
				}
				found[kind]++
				expect.Succeedf(t, yaml.UnmarshalStrict([]byte(sample), object), "%s:\n%s", path, sample)
			}
		}
	}
	expect.AtLeastf(t, len(found), 3, "kinds of samples, of %v", found)
}
