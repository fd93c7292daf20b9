package inject

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/conclave-dev/conclave/internal/command"
)

// manifest is a file, a URL or stdin, split into its documents.
type manifest struct {
	name      string
	documents [][]byte
}

// readManifests reads the files, folders, URLs and stdin that -f names, which are
// the same as those that kubectl would read. It doesn't use resource.Builder, which
// decodes the objects: the documents must stay byte for byte what they are.
func readManifests(ctx context.Context, options resource.FilenameOptions, stdin io.Reader) ([]manifest, error) {
	var (
		manifests []manifest
		stdinRead bool
	)
	for _, name := range options.Filenames {
		var (
			read []manifest
			err  error
		)
		switch {
		case name == "-" && stdinRead:
			err = command.UsageErrorf("-f: - (stdin) must be given only once")
		case name == "-":
			stdinRead = true
			read, err = readFrom(stdin, "stdin")
		case strings.HasPrefix(name, "http://"), strings.HasPrefix(name, "https://"):
			read, err = readURL(ctx, name)
		default:
			read, err = readFiles(name, options.Recursive)
		}
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, read...)
	}
	return manifests, nil
}

// readFiles reads the files that a path or a pattern such as "*.yaml" names.
func readFiles(pattern string, recursive bool) ([]manifest, error) {
	paths, err := expandPattern(pattern)
	if err != nil {
		return nil, err
	}
	var manifests []manifest
	for _, path := range paths {
		visitors, err := resource.ExpandPathsToFileVisitors(nil, path, recursive, resource.FileExtensions, nil)
		if err != nil {
			return nil, command.UsageErrorf("-f: %s", err)
		}
		if len(visitors) == 0 {
			return nil, command.UsageErrorf("-f: the folder %s must contain files with the extension %s; for its subfolders, add -R",
				path, strings.Join(resource.FileExtensions, ", "))
		}
		for _, v := range visitors {
			file, ok := v.(*resource.FileVisitor)
			if !ok {
				return nil, fmt.Errorf("cannot read %s: unexpected visitor %T", path, v)
			}
			read, err := readFile(file.Path)
			if err != nil {
				return nil, err
			}
			manifests = append(manifests, read...)
		}
	}
	return manifests, nil
}

// expandPattern returns the path itself if it exists, or else what matches it.
func expandPattern(pattern string) ([]string, error) {
	if _, err := os.Stat(pattern); !errors.Is(err, fs.ErrNotExist) {
		return []string{pattern}, nil
	}
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil, command.UsageErrorf("-f: invalid pattern %q: %s", pattern, err)
	}
	if len(paths) == 0 {
		return nil, command.UsageErrorf("-f: the path %q does not exist", pattern)
	}
	return paths, nil
}

func readFile(path string) ([]manifest, error) {
	file, err := os.Open(filepath.Clean(path))
	if err != nil {
		return nil, command.UsageErrorf("-f: %s", err)
	}
	defer file.Close()
	return readFrom(file, path)
}

// As kubectl does, readURL makes three attempts. Each may take urlTimeout.
const (
	urlAttempts   = 3
	urlRetryDelay = time.Second
)

var urlTimeout = 30 * time.Second // a variable for tests

func readURL(ctx context.Context, url string) ([]manifest, error) {
	for attempt := 1; ; attempt++ {
		content, temporary, err := get(ctx, url)
		switch {
		case err == nil:
			return readFrom(bytes.NewReader(content), url)
		case !temporary || attempt == urlAttempts:
			return nil, fmt.Errorf("cannot read %s: %w", url, command.SingleLine(err))
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(urlRetryDelay):
		}
	}
}

// get returns the content of a URL, or an error and whether it may be temporary.
func get(ctx context.Context, url string) (content []byte, temporary bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, false, err
	}
	response, err := (&http.Client{Timeout: urlTimeout}).Do(request)
	if err != nil {
		return nil, true, errors.Unwrap(err) // without the URL
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, response.StatusCode >= http.StatusInternalServerError, fmt.Errorf("the server responded %s", response.Status)
	}
	content, err = io.ReadAll(response.Body)
	return content, true, err
}

// readFrom splits the content of a reader into documents.
func readFrom(from io.Reader, name string) ([]manifest, error) {
	m := manifest{name: name}
	reader := bufio.NewReader(from)
	var err error
	if isJSON(reader) {
		m.documents, err = splitJSON(reader, name)
	} else {
		m.documents, err = splitYAML(reader, name)
	}
	if err != nil {
		return nil, err
	}
	return []manifest{m}, nil
}

// isJSON reports whether a manifest is a sequence of JSON objects, as kubectl
// prints them, which isn't valid YAML.
func isJSON(r *bufio.Reader) bool {
	for n := 1; ; n++ {
		start, err := r.Peek(n)
		if err != nil {
			return false
		}
		if last := start[n-1]; !bytes.ContainsRune([]byte(" \t\r\n"), rune(last)) {
			return last == '{'
		}
	}
}

func splitJSON(r io.Reader, name string) ([][]byte, error) {
	var documents [][]byte
	for decoder := json.NewDecoder(r); ; {
		var document json.RawMessage
		err := decoder.Decode(&document)
		switch {
		case errors.Is(err, io.EOF):
			return documents, nil
		case err != nil:
			return nil, command.UsageErrorf("object %d of %s is not valid JSON: %s", len(documents)+1, name, err)
		}
		documents = append(documents, append(document, '\n'))
	}
}

func splitYAML(r *bufio.Reader, name string) ([][]byte, error) {
	var documents [][]byte
	for reader := utilyaml.NewYAMLReader(r); ; {
		document, err := reader.Read()
		switch {
		case errors.Is(err, io.EOF):
			return documents, nil
		case err != nil:
			return nil, fmt.Errorf("cannot read %s: %w", name, err)
		}
		documents = append(documents, document)
	}
}
