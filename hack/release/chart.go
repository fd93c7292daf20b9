package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/conclave-dev/conclave/hack/internal/archive"
)

// writeChart packs the chart with the version and the digests of the images. The config folder in it is a symbolic
// link, which the archive replaces by the files. helm package would write the time of the build to the archive.
func (r *release) writeChart(digests map[string]string) error {
	const folder = "charts/conclave"
	files, err := archive.Folder(os.DirFS(r.source), folder)
	if err != nil {
		return err
	}
	for i := range files {
		file := &files[i]
		switch file.Name {
		case folder + "/Chart.yaml":
			file.Content, err = r.stampChart(file.Content)
		case folder + "/values.yaml":
			file.Content, err = r.stampValues(file.Content, digests)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file.Name, err)
		}
		file.Name = strings.TrimPrefix(file.Name, "charts/")
	}
	name := "conclave-" + strings.TrimPrefix(r.version, "v") + ".tgz"
	return r.done(name, archive.Write(filepath.Join(r.output, name), r.created, files))
}

func (r *release) stampChart(content []byte) ([]byte, error) {
	text := string(content)
	for before, after := range map[string]string{
		"\nversion: 0.0.0\n":    "\nversion: " + strings.TrimPrefix(r.version, "v") + "\n",
		"\nappVersion: unset\n": "\nappVersion: " + r.version + "\n",
	} {
		if strings.Count(text, before) != 1 {
			return nil, fmt.Errorf("must contain %q once", strings.TrimSpace(before))
		}
		text = strings.Replace(text, before, after, 1)
	}
	return []byte(text), nil
}

var unsetImage = regexp.MustCompile(`repository: image\.invalid/(\w+)\n( +)tag: unset\n +digest: ""\n`)

// stampValues replaces the images of the values.
func (r *release) stampValues(content []byte, digests map[string]string) ([]byte, error) {
	stamped := unsetImage.ReplaceAllStringFunc(string(content), func(image string) string {
		words := unsetImage.FindStringSubmatch(image)
		if digests[words[1]] == "" {
			return image
		}
		return fmt.Sprintf("repository: %s\n%stag: \"\"\n%[2]sdigest: %s\n", r.image(words[1]), words[2], digests[words[1]])
	})
	if strings.Contains(stamped, "image.invalid") {
		return nil, fmt.Errorf("each image must have repository: image.invalid/NAME, tag: unset and digest: \"\", where " +
			"NAME is an image of the release")
	}
	return []byte(stamped), nil
}
