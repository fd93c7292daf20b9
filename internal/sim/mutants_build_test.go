package sim_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// Go compiles and links each package's tests once, with all mutants. The function that a mutant changes begins with a
// switch that holds its mutated body: the process that checks mutant 17 has CONCLAVE_MUTANT=17, and all others run the
// original body. An overlay replaces the files, so those of the working copy don't change.

// chosenMutant is the code that reads the number of the mutant, in each package that has some.
const chosenMutant = `package %s

import (
	"os"
	"strconv"
)

var chosenMutant, _ = strconv.Atoi(os.Getenv(%q))
`

// buildMutants compiles the tests of the packages that check mutants, and returns the folder of the programs.
func buildMutants(t *testing.T, all []mutant) string {
	t.Helper()
	// Go's test cache doesn't notice what another process compiles.
	must.Succeed(t, filepath.WalkDir("../election", func(_ string, _ fs.DirEntry, err error) error { return err }))
	folder := t.TempDir()
	arguments := []string{"test", "-c", "-overlay", writeOverlay(t, folder, mutatedFiles(t, all)), "-o", folder + "/"}
	packages := map[string]bool{}
	for _, m := range all {
		packages["../"+m.pkg] = true
	}
	arguments = append(arguments, slices.Sorted(maps.Keys(packages))...)
	if output, err := exec.CommandContext(t.Context(), "go", arguments...).CombinedOutput(); err != nil {
		t.Fatalf("cannot compile the mutants: %v\n%s", err, output)
	}
	return folder
}

// mutatedFiles returns the files with all mutants, by path.
func mutatedFiles(t *testing.T, all []mutant) map[string]*mutatedFile {
	t.Helper()
	files := map[string]*mutatedFile{}
	for number, m := range all {
		path := absolute(t, m.file)
		if files[path] == nil {
			files[path] = parseFile(t, path)
		}
		expect.Succeedf(t, files[path].add(m, number+1), "%s: update the mutant %q", m.file, m.description)
	}
	if t.Failed() {
		t.FailNow()
	}
	return files
}

// writeOverlay writes the files to the folder, and returns the overlay that replaces the original ones.
func writeOverlay(t *testing.T, folder string, files map[string]*mutatedFile) string {
	t.Helper()
	texts := map[string]string{}
	for path, f := range files {
		texts[path] = f.text()
		texts[filepath.Join(filepath.Dir(path), "chosen_mutant.go")] = fmt.Sprintf(chosenMutant,
			f.parsed.Name.Name, mutantVariable)
	}
	replace := map[string]string{}
	for path, text := range texts {
		replace[path] = filepath.Join(folder, fmt.Sprintf("%d.go", len(replace)))
		writeFile(t, replace[path], []byte(text))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	must.Succeed(t, err)
	file := filepath.Join(folder, "overlay.json")
	writeFile(t, file, overlay)
	return file
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	must.Succeed(t, os.WriteFile(path, data, 0o600))
}

func absolute(t *testing.T, file string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", file))
	must.Succeed(t, err)
	return path
}

// mutatedFile is a file with mutants.
type mutatedFile struct {
	source string
	parsed *ast.File
	// variants are the cases that begin a function, by the offset of its body.
	variants map[int]*strings.Builder
}

func parseFile(t *testing.T, path string) *mutatedFile {
	t.Helper()
	source, err := os.ReadFile(path)
	must.Succeed(t, err)
	parsed, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
	must.Succeed(t, err)
	return &mutatedFile{source: string(source), parsed: parsed, variants: map[int]*strings.Builder{}}
}

// offset is that of a position in the file.
func (f *mutatedFile) offset(p token.Pos) int { return int(p - f.parsed.FileStart) }

// add adds the body of the function that a mutant changes.
func (f *mutatedFile) add(m mutant, number int) error {
	from, to, err := f.find(m.old)
	if err != nil {
		return err
	}
	for _, d := range f.parsed.Decls {
		function, ok := d.(*ast.FuncDecl)
		if !ok || function.Body == nil {
			continue
		}
		begin, end := f.offset(function.Body.Lbrace)+1, f.offset(function.Body.Rbrace)
		if begin <= from && to <= end {
			f.addVariant(begin, number, f.source[begin:from]+m.new+f.source[to:end], function.Type.Results != nil)
			return nil
		}
	}
	return fmt.Errorf("%q isn't inside the body of a function", m.old)
}

// find returns where the text begins and ends that a mutant replaces, wherever lines are broken.
func (f *mutatedFile) find(old string) (from, to int, err error) {
	source, offsets := withoutSpace(f.source)
	wanted, _ := withoutSpace(old)
	if n := strings.Count(source, wanted); n != 1 {
		return 0, 0, fmt.Errorf("the file contains %q %d times, want once", old, n)
	}
	at := strings.Index(source, wanted)
	return offsets[at], offsets[at+len(wanted)-1] + 1, nil
}

// withoutSpace returns a text without white space, and the offset of each byte that is left.
func withoutSpace(text string) (string, []int) {
	var kept []byte
	var offsets []int
	for i := range len(text) {
		if !strings.ContainsRune(" \t\n", rune(text[i])) {
			kept, offsets = append(kept, text[i]), append(offsets, i)
		}
	}
	return string(kept), offsets
}

// addVariant adds a case for a mutant to the switch at the beginning of a body.
func (f *mutatedFile) addVariant(body, number int, text string, returns bool) {
	if f.variants[body] == nil {
		f.variants[body] = &strings.Builder{}
	}
	fmt.Fprintf(f.variants[body], "case %d:\n%s\n", number, text)
	if !returns {
		f.variants[body].WriteString("return\n")
	}
}

// text is the source with all variants.
func (f *mutatedFile) text() string {
	var b strings.Builder
	for i := range len(f.source) {
		if cases := f.variants[i]; cases != nil {
			fmt.Fprintf(&b, "\nswitch chosenMutant {\n%s}\n", cases)
		}
		b.WriteByte(f.source[i])
	}
	return b.String()
}
