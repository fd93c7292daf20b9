package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestDecisionsAreShort(t *testing.T) {
	decisions, _ := filepath.Glob(filepath.Join(root, "docs/adr/[0-9]*.md"))
	if len(decisions) == 0 {
		t.Error("found no decisions")
	}
	for _, path := range decisions {
		if words := len(strings.Fields(read(t, path))); words > 400 {
			t.Errorf("%s has %d words, want at most 400: state the decision and its reasons, not its history", path, words)
		}
	}
}

func TestDocumentsAreShort(t *testing.T) {
	const most = 65000
	words := 0
	for _, path := range files(t, "docs", ".md") {
		words += len(strings.Fields(read(t, path)))
	}
	if words > most {
		t.Errorf("docs has %d words, want at most %d: delete before you add", words, most)
	}
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
	documents = append(documents, filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md"), filepath.Join(root, "SECURITY.md"))
	for _, path := range documents {
		for _, s := range longSentences(read(t, path)) {
			t.Errorf("%s has a sentence of more than %d words: %s", path, longestSentence, s)
		}
	}
}

func TestLongSentencesAreDetected(t *testing.T) {
	words := func(n int) string { return strings.TrimSpace(strings.Repeat("word ", n)) }
	for text, long := range map[string]bool{
		words(40) + ".": false, words(41) + ".": true, words(39) + " `some code`.": false, words(40) + " `some code`.": true, words(30) + ". " + words(30): false,
		"- " + words(30) + "\n- " + words(30): false, "| " + words(30) + " | " + words(30) + " |": false,
		"    " + words(50): false, "```\n" + words(50) + "\n```": false, "# " + words(20) + "\n\n" + words(30): false, words(20) + "\n" + words(30): true,
	} {
		if got := longSentences(text); (len(got) > 0) != long {
			t.Errorf("%q: got %q, want some: %t", text, got, long)
		}
	}
}
