// Package layers_test checks which folder of this repository imports what.
package layers_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// table lists the folders of this repository from top to bottom. Of this repository, a folder imports only what is
// further down in the table, whatever its line names. A line is
//
//	FOLDERS : IMPORTS OF CODE : IMPORTS OF TESTS, IN ADDITION TO "tests" # REASON
//
// FOLDER/... is about a folder and those below it that have no longer line; these import each other freely. An import
// is a folder of this repository, a package of the standard library or one of another module; /... adds those below it.
// "std" is the standard library, "any" is everything outside of this repository, and "all" is everything. -x takes x
// away: the last word that matches decides. !x does so, too, also by way of other packages. NAME = WORDS gives words a
// name. No package imports what "nowhere" names.
const table = `
algorithms = internal/election/bully internal/election/ring internal/election/statustable
core       = bytes cmp encoding/binary errors fmt hash/crc32 hash/fnv iter maps math math/bits slices sort strconv strings unicode unicode/utf8
kubernetes = k8s.io/... sigs.k8s.io/...
objects    = std k8s.io/api/... k8s.io/apimachinery/... api/v1
cluster    = k8s.io/client-go/... sigs.k8s.io/controller-runtime/... net/http/...
apart      = k8s.io/... sigs.k8s.io/controller-runtime/... api/... controllers/... internal/operator/... internal/sim/...
elects     = internal/sim/... internal/agent/... internal/election/...
open       = all -algorithms
tests      = all -algorithms
nowhere    = -io/ioutil -math/rand -github.com/pkg/errors -golang.org/x/net/context # use io and os, math/rand/v2 with a source of your own, errors, context

hack/tools/... hack/... test/... examples/... : open
internal/layers                 : std
internal/testing/...            : open # further up than all other code: only tests and tools import it
internal/testing/tracecheck     : std # the model shares no code with what it checks
internal/election/electiontest/... : core internal/election internal/election/catalog internal/election/office # only tests import it

cmd/manager                     : open -elects !internal/sim/... !internal/agent/... !internal/election !k8s.io/apiserver/... !google.golang.org/grpc/... !go.opentelemetry.io/... # the operator takes no part in elections; it shares internal/protocol with the agent. What the API server links is as large as the rest
cmd/agent                       : open !apart !internal/chaos/... : -apart # an agent works without the operator and has no credentials for the API server
cmd/...                         : open

internal/plugin/dashboard       : open
internal/plugin/report          : open -elects -controllers/... -internal/dashboard/...
internal/plugin/explain         : open -elects -controllers/... # writes the dashboard's page of a group to a file
internal/dashboard/...          : open
internal/plugin/simulate        : open # elections without a cluster
internal/plugin/...             : open -elects -controllers/... -internal/dashboard/...
internal/chaos/live             : any api/v1 client internal/chaos internal/chaos/kindnodes internal/clusteraccess/... internal/command internal/protocol/control # observes a group, or another leader, from outside
internal/chaos                  : std -net/... -os internal/chaos/... # decides from values; live has the cluster
internal/chaos/...              : std # runs the programs of nodes
internal/describe               : std -net/... -os k8s.io/apimachinery/... api/v1 internal/protocol/control # formats objects; the plugin has the connections and the terminal
internal/clusteraccess/...      : any api/v1 internal/command internal/journal internal/protocol/...
internal/command                : any

controllers/...                 : any api/v1 internal/operator/... internal/net/... internal/protocol/... : -internal/sim/... -internal/agent/...
internal/operator/serve/webhook : objects github.com/prometheus/client_golang/prometheus sigs.k8s.io/controller-runtime/pkg/webhook/admission internal/operator/decide/... # decides from the request and the namespace's groups, which its caller reads
internal/operator/serve/enroll  : objects github.com/prometheus/client_golang/prometheus sigs.k8s.io/controller-runtime/pkg/client internal/operator/decide/... internal/net/... internal/protocol/control internal/protocol/identity # handles agents' requests without access to the CA key: it calls a signer
internal/operator/serve/authority : std -net/http/... k8s.io/api/... k8s.io/apimachinery/... github.com/prometheus/client_golang/prometheus sigs.k8s.io/controller-runtime/pkg/client internal/protocol/control internal/protocol/identity # has the CA key and no server
internal/operator/agents        : any internal/election/memberlist internal/net/... internal/operator/decide/facts internal/protocol/... # what it knows about an agent is a fact of a decision
internal/operator/cache         : any api/v1 internal/operator/decide/... internal/protocol/control # decides what the cache retains
internal/operator/decide        : any -cluster api/v1 internal/operator/decide/facts internal/operator/decide/groupstatus internal/operator/decide/membership internal/election/memberlist internal/protocol/control : -cluster # decides from values; controllers reads and writes objects
internal/operator/decide/groupstatus : any -cluster api/v1 internal/operator/decide/facts internal/operator/decide/membership internal/election/memberlist internal/protocol/... : -cluster # as decide
internal/operator/decide/membership : any -cluster api/v1 internal/operator/decide/facts internal/protocol/... internal/election/memberlist : -cluster # as decide
internal/operator/decide/spread : any -cluster api/v1 : -cluster # as decide
internal/operator/decide/facts  : any -cluster api/v1 internal/protocol/control : -cluster # what decisions follow from
internal/operator/decide/inject : objects -net/http/... internal/protocol/control # computes a patch from JSON; the webhook and the plugin have the connections

internal/sim                    : any -kubernetes -net/... internal/election/... -algorithms internal/transcript : -all any -kubernetes -net/... internal/election/... -algorithms internal/journal internal/transcript internal/testing/expect internal/testing/must internal/testing/tracecheck # its network is virtual
internal/transcript             : any -net/... -os internal/election/... -algorithms internal/journal internal/protocol/... # merges journals; its callers have connections and files

internal/agent/supervise        : any -kubernetes client internal/agent/alarm internal/agent/clock internal/election : -apart # a process of its own, which uses the API as applications do
internal/agent/...              : any -kubernetes internal/agent/... internal/election/... -algorithms internal/journal internal/net/... internal/protocol/... : -apart # as cmd/agent
internal/agent/config           : any -kubernetes sigs.k8s.io/json sigs.k8s.io/yaml internal/election/... -algorithms internal/protocol/... : -apart # as cmd/agent; reads YAML as Kubernetes does
internal/agent/wire             : errors fmt io unicode/utf8 google.golang.org/protobuf/encoding/protowire internal/election : -apart # encodes and decodes; transport has the connections
internal/journal                : std -net/... internal/election/... -algorithms internal/protocol/... # records, without a connection: agents import it, and what reads journals

controllerruntime               : std client controllerruntime/... github.com/go-logr/logr k8s.io/client-go/rest k8s.io/client-go/tools/leaderelection/... sigs.k8s.io/controller-runtime/pkg/log sigs.k8s.io/controller-runtime/pkg/manager # a manager links these already
controllerruntime/lease         : std controllerruntime/internal/... github.com/go-logr/logr k8s.io/apimachinery/pkg/api/errors k8s.io/client-go/tools/leaderelection/... k8s.io/klog/v2 # a program with a Lease links these already
controllerruntime/internal/...  : std
client                          : std # an application that imports the client gets no other module
api/...                         : std k8s.io/apimachinery/... # importers of the types don't need the operator's dependencies

internal/election/catalog       : core internal/election algorithms # the only importer of the algorithms
algorithms                      : core internal/election
internal/election/office        : core internal/election internal/election/detector internal/election/grants
internal/election/detector internal/election/grants : core internal/election
internal/election               : core internal/election/memberlist # no clock, goroutine, context, randomness, log, file or connection: a caller has them

internal/net/...                : any internal/net/...
internal/protocol/control       : std -net/... internal/election/memberlist internal/protocol/identity # defines messages; agent and operator have the connections
internal/protocol/identity      : std # the manager signs what an agent presents: both import it without the other's dependencies
internal/protocol/...           : any -kubernetes # agent and operator import it, not the reverse
internal/election/memberlist    : encoding/binary fmt hash/fnv slices strconv # on the wire, in files, and for those who decide: they have the clocks
`

const (
	module = "github.com/conclave-dev/conclave/"
	root   = "../.."
)

// line is a line of the table for one folder.
type line struct {
	number      int
	folder      string
	code, tests []string
	reason      string
}

func TestImportsFollowLayers(t *testing.T) {
	lines := parse(t)
	for file, imports := range sources(t) {
		folder := path.Dir(file)
		own := find(lines, folder)
		if own == nil {
			t.Errorf("%s: add a line for %s to the table in internal/layers/layers_test.go", file, folder)
			continue
		}
		for _, imported := range imports {
			if err := own.check(lines, strings.HasSuffix(file, "_test.go"), imported); err != nil {
				t.Errorf("%s imports %s, but %v", file, imported, err)
			}
		}
	}
}

func TestTableNamesFoldersThatExist(t *testing.T) {
	folders, tops := map[string]bool{}, map[string]bool{}
	for file := range sources(t) {
		top, _, _ := strings.Cut(file, "/")
		folders[path.Dir(file)], tops[top] = true, true
	}
	for _, l := range parse(t) {
		for _, word := range slices.Concat([]string{l.folder}, l.code, l.tests) {
			name := strings.TrimLeft(word, "-!")
			exists := false
			for folder := range folders {
				exists = exists || matches(name, folder)
			}
			if top, _, _ := strings.Cut(name, "/"); tops[top] && !exists {
				t.Errorf("remove %s from the line of %s in internal/layers/layers_test.go: there is no such folder", word, l.folder)
			}
		}
	}
}

// The go command knows what a program links by way of other modules, too.
func TestProgramsLinkNothingThatTheyExclude(t *testing.T) {
	for _, l := range parse(t) {
		excluded := slices.DeleteFunc(slices.Clone(l.code), func(word string) bool { return word[0] != '!' })
		if len(excluded) == 0 {
			continue
		}
		command := exec.CommandContext(t.Context(), "go", "list", "-deps", "./"+l.folder)
		command.Dir, command.Stderr = root, t.Output()
		command.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0", "GOWORK=off")
		linked, err := command.Output()
		must.Succeedf(t, err, "go list -deps ./%s", l.folder)
		for linked := range strings.FieldsSeq(string(linked)) {
			for _, word := range excluded {
				if matches(word[1:], strings.TrimPrefix(linked, module)) {
					t.Errorf("%s must not link %s, but imports it by way of other packages", l.folder, linked)
				}
			}
		}
	}
}

// check returns why the folder's code or tests may not import a package.
func (l *line) check(lines []line, test bool, imported string) error {
	folder, ours := strings.CutPrefix(imported, module)
	target := find(lines, folder)
	switch {
	case ours && target == nil:
		return fmt.Errorf("the table in internal/layers/layers_test.go has no line for %s", folder)
	case ours && target.folder == l.folder:
		return nil
	case ours && !test && target.number <= l.number:
		return fmt.Errorf("%s isn't below %s in internal/layers/layers_test.go", target.folder, l.folder)
	}
	words := l.code
	if test {
		words = l.tests
	}
	if !allowed(words, folder, ours) {
		return fmt.Errorf("the line of %s in internal/layers/layers_test.go doesn't allow it (%s)", l.folder, l.reason)
	}
	return nil
}

// allowed reports whether the last word that matches a package allows it. A folder is relative to the repository if it
// is ours.
func allowed(words []string, folder string, ours bool) bool {
	result := false
	for _, word := range words {
		name := strings.TrimLeft(word, "-!")
		first, _, _ := strings.Cut(folder, "/")
		if name == "all" || name == "any" && !ours ||
			name == "std" && !ours && !strings.Contains(first, ".") || matches(name, folder) {
			result = name == word
		}
	}
	return result
}

// find returns the line of a folder: its own, or else the one with the longest pattern that matches, or nil.
func find(lines []line, folder string) *line {
	var found *line
	for i := range lines {
		switch l := &lines[i]; {
		case l.folder == folder:
			return l
		case matches(l.folder, folder) && (found == nil || len(l.folder) > len(found.folder)):
			found = l
		}
	}
	return found
}

func matches(pattern, folder string) bool {
	tree, ok := strings.CutSuffix(pattern, "/...")
	return folder == tree || ok && strings.HasPrefix(folder, tree+"/")
}

// parse returns the lines of the table. Names of words are replaced by the words.
func parse(t *testing.T) []line {
	t.Helper()
	names := map[string][]string{}
	expand := func(text string) []string {
		var words []string
		for word := range strings.FieldsSeq(text) {
			name := strings.TrimLeft(word, "-!")
			if _, ok := names[name]; !ok {
				words = append(words, word)
			}
			for _, w := range names[name] {
				words = append(words, strings.TrimSuffix(word, name)+w)
			}
		}
		return words
	}
	var lines []line
	for number, text := range strings.Split(table, "\n") {
		text, reason, _ := strings.Cut(text, " # ")
		if name, words, ok := strings.Cut(text, "="); ok {
			names[strings.TrimSpace(name)] = expand(words)
			continue
		}
		fields := append(strings.Split(text, ":"), "")
		if len(fields) < 3 && strings.TrimSpace(text) != "" {
			t.Fatalf("line %d of the table is neither FOLDERS : IMPORTS : TESTS nor NAME = WORDS: %s", number, text)
		}
		for _, folder := range expand(fields[0]) {
			code, tests := expand(fields[1]), expand("tests "+fields[2])
			lines = append(lines, line{
				number: number, folder: folder, reason: reason,
				code:  slices.Concat(code, names["nowhere"]),
				tests: slices.Concat(code, tests, names["nowhere"]),
			})
		}
	}
	return lines
}

// sources returns the imports of each Go file of this repository, whatever its build constraints and its module.
func sources(t *testing.T) map[string][]string {
	t.Helper()
	files := map[string][]string{}
	walk(t, func(name string) {
		if path.Ext(name) != ".go" {
			return
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.ImportsOnly)
		must.Succeed(t, err)
		files[name] = nil
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			must.Succeed(t, err)
			files[name] = append(files[name], imported)
		}
	})
	if len(files) == 0 {
		t.Fatalf("got no Go files in %s", root)
	}
	return files
}

// walk calls a function for each file of this repository, but not for test data.
func walk(t *testing.T, visit func(name string)) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if !entry.IsDir() {
			visit(name)
			return nil
		}
		if name != "." &&
			(base == "testdata" || base == "node_modules" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")) {
			return fs.SkipDir
		}
		return nil
	})
	must.Succeed(t, err)
}
