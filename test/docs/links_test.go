// Package docs checks the documents: each relative link leads to a file and a heading that exist, commands and samples
// name what exists, and documents and their sentences are short.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

const root = "../.."

// files returns the files below a folder of the repository whose names have one of
// these endings, without those that aren't sources.
func files(t *testing.T, folder string, endings ...string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "dist", "node_modules", "testdata"}, name):
			return fs.SkipDir
		case !entry.IsDir() &&
			slices.ContainsFunc(endings, func(ending string) bool { return strings.HasSuffix(name, ending) }):
			found = append(found, path)
		}
		return nil
	})
	must.Succeed(t, err)
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	text := must.ReadFile(t, path)
	return string(text)
}

var (
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	code    = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*?) *$`)
	mark    = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns the anchors that GitHub gives to the headings of a document.
func anchors(text string) []string {
	var found []string
	count := map[string]int{}
	for _, match := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		title := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(match[1], "$1")
		anchor := strings.ReplaceAll(mark.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
		if n := count[anchor]; n > 0 {
			found = append(found, fmt.Sprintf("%s-%d", anchor, n))
		} else {
			found = append(found, anchor)
		}
		count[anchor]++
	}
	return found
}

// problem describes why a link in the document at path is broken. It is empty if the
// link is external or leads somewhere.
func problem(t *testing.T, path, target string) string {
	t.Helper()
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return ""
	}
	file, anchor, _ := strings.Cut(target, "#")
	destination := path
	if file != "" {
		destination = filepath.Join(filepath.Dir(path), file)
	}
	info, err := os.Stat(destination)
	if err != nil {
		return "there is no such file"
	}
	if anchor == "" {
		return ""
	}
	if info.IsDir() {
		destination = filepath.Join(destination, "README.md")
	}
	if known := anchors(read(t, destination)); !slices.Contains(known, anchor) {
		return fmt.Sprintf("there is no such heading, want one of %q", known)
	}
	return ""
}

func TestLinksLeadSomewhere(t *testing.T) {
	links := 0
	for _, path := range files(t, "", ".md") {
		text := code.ReplaceAllString(fence.ReplaceAllString(read(t, path), ""), "")
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			links++
			if p := problem(t, path, match[1]); p != "" {
				t.Errorf("%s links to %s: %s", path, match[1], p)
			}
		}
	}
	if links == 0 {
		t.Error("found no links")
	}
}

func TestBrokenLinksAreDetected(t *testing.T) {
	for target, broken := range map[string]bool{
		"links_test.go": false, "no-such-file.md": true, "../../README.md#no-such-heading": true,
		"../../CONTRIBUTING.md#glossary": false, "https://example.org/#x": false,
	} {
		if p := problem(t, "README.md", target); (p != "") != broken {
			t.Errorf("link to %s: got problem %q, want one: %t", target, p, broken)
		}
	}
}

// TestCodeNamesDocumentsThatExist checks what messages, comments and manifests say about the documents.
func TestCodeNamesDocumentsThatExist(t *testing.T) {
	document := regexp.MustCompile(`docs/[\w/-]+\.md`)
	for _, path := range append(files(t, "", ".go", ".yaml", ".sh"), filepath.Join(root, "Makefile")) {
		for _, name := range document.FindAllString(read(t, path), -1) {
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Errorf("%s names %s: there is no such file", path, name)
			}
		}
	}
}

func TestReadmeIsShort(t *testing.T) {
	expect.AtMostf(t, len(strings.Fields(read(t, filepath.Join(root, "README.md")))), 880,
		"words in README.md (move details to docs)")
}

func TestDecisionsAreShort(t *testing.T) {
	decisions, _ := filepath.Glob(filepath.Join(root, "docs/adr/[0-9]*.md"))
	if len(decisions) == 0 {
		t.Error("found no decisions")
	}
	for _, path := range decisions {
		expect.AtMostf(t, len(strings.Fields(read(t, path))), 400,
			"words in %s (state the decision and its reasons, not its history)", path)
	}
}

func TestDocumentsAreShort(t *testing.T) {
	const most = 65000
	words := 0
	for _, path := range files(t, "docs", ".md") {
		words += len(strings.Fields(read(t, path)))
	}
	expect.AtMostf(t, words, most, "words in docs (delete before you add)")
}

const longestSentence = 40

var (
	comment   = regexp.MustCompile(`(?s)<!--.*?-->`)
	indented  = regexp.MustCompile(`(?m)^    +\S.*$`)
	paragraph = regexp.MustCompile(`\n\s*\n|\n#+ .*|\n *(?:[-*]|\d+\.) +|\n *\||\|`)
	linked    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	sentence  = regexp.MustCompile(`[.!?][*)"]*\s`)
)

// longSentences returns the sentences of a document that have too many words. Code counts as one.
func longSentences(text string) (long []string) {
	text = indented.ReplaceAllString(comment.ReplaceAllString(fence.ReplaceAllString(text, "\n\n"), ""), "\n\n")
	text = linked.ReplaceAllString(code.ReplaceAllString(text, "code"), "$1")
	for _, part := range paragraph.Split("\n"+text, -1) {
		for _, s := range sentence.Split(part+" ", -1) {
			if words := strings.Fields(s); len(words) > longestSentence {
				long = append(long, strings.Join(words, " "))
			}
		}
	}
	return long
}

func TestSentencesAreShort(t *testing.T) {
	documents := files(t, "docs", ".md")
	documents = append(documents, filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md"),
		filepath.Join(root, "SECURITY.md"))
	for _, path := range documents {
		for _, s := range longSentences(read(t, path)) {
			t.Errorf("%s has a sentence of more than %d words: %s", path, longestSentence, s)
		}
	}
}

func TestLongSentencesAreDetected(t *testing.T) {
	words := func(n int) string { return strings.TrimSpace(strings.Repeat("word ", n)) }
	for text, long := range map[string]bool{
		words(40) + ".": false, words(41) + ".": true, words(39) + " `some code`.": false, words(40) + " `some code`.": true,
		words(30) + ". " + words(30):          false,
		"- " + words(30) + "\n- " + words(30): false, "| " + words(30) + " | " + words(30) + " |": false,
		"    " + words(50): false, "```\n" + words(50) + "\n```": false, "# " + words(20) + "\n\n" + words(30): false,
		words(20) + "\n" + words(30): true,
	} {
		if got := longSentences(text); (len(got) > 0) != long {
			t.Errorf("%q: got %q, want some: %t", text, got, long)
		}
	}
}
