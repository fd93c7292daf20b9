package dashboard

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"regexp"
	"strings"
	"time"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/transcript"
)

// File is the page of a group with its last elections as one file, which needs no server and no network.
type File struct {
	Group *v1.ElectionGroup
	// Elections are the last ones, the newest first. Without them, Missing says why.
	Elections []*transcript.Election
	Missing   string
	// Versions and Text are for all readers. Without scripts, nothing else is shown.
	Versions, Text string
	// At is the time of all this.
	At time.Time
}

// The policy permits only the file's own script and style. What agents and pods wrote is text or JSON, in which < is
// escaped.
const filePage = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src '%s'; style-src '%s';
 base-uri 'none'; form-action 'none'">
<title>%s · Conclave</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<style>%s</style>
</head>
<body>
<main id="main">
<pre id="versions" tabindex="0">%s</pre>
<pre id="text" tabindex="0">%s</pre>
</main>
<script type="application/json" id="data">%s</script>
<script>%s</script>
</body>
</html>
`

// Write writes the file.
func (f *File) Write(w io.Writer) error {
	elections := make([]*shownElection, len(f.Elections))
	for i, e := range f.Elections {
		elections[i] = newShownElection(e)
	}
	data, err := json.Marshal(
		map[string]any{"at": f.At.UTC(), "detail": NewDetail(f.Group, f.At), "elections": elections, "missing": f.Missing})
	if err != nil {
		return fmt.Errorf("cannot encode the elections: %w", err)
	}
	var script strings.Builder
	bundle(&script, "file", map[string]bool{})
	style := asset("style.css")
	_, err = fmt.Fprintf(w, filePage, hash(script.String()), hash(style),
		html.EscapeString(f.Group.Namespace+"/"+f.Group.Name), style,
		html.EscapeString(f.Versions), html.EscapeString(f.Text), data, script.String())
	return err
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

var (
	imports = regexp.MustCompile(`(?m)^import \{ (.+) \} from "\./(.+)\.js";$`)
	exports = regexp.MustCompile(`(?m)^export ((?:function|const) (\w+))`)
)

// bundle writes a module of the page after those that it imports, as a part of one script: a file can't import others.
func bundle(to *strings.Builder, module string, done map[string]bool) {
	if done[module] {
		return
	}
	done[module] = true
	text := asset(module + ".js")
	for _, found := range imports.FindAllStringSubmatch(text, -1) {
		bundle(to, found[2], done)
	}
	var names []string
	for _, found := range exports.FindAllStringSubmatch(text, -1) {
		names = append(names, found[2])
	}
	text = exports.ReplaceAllString(imports.ReplaceAllString(text, "const { $1 } = $$$2;"), "$1")
	fmt.Fprintf(to, "const $%s = (() => {\n%sreturn { %s };\n})();\n", module, text, strings.Join(names, ", "))
}

// asset returns a file of the page.
func asset(name string) string {
	text, err := embedded.ReadFile("assets/" + name)
	if err != nil {
		panic(err) // It is embedded.
	}
	return string(text)
}
