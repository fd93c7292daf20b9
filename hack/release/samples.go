package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sampleImage is the image of the samples in the repository, which nobody can pull.
const sampleImage = "image: image.invalid/worker:unset\n"

// writeSamples writes the sample groups with the digest of their image. Files of a release are in one folder, so their
// names begin with sample-.
func (r *release) writeSamples(digests map[string]string) error {
	samples, err := filepath.Glob(filepath.Join(r.source, "config", "samples", "*.yaml"))
	if err != nil {
		return err
	}
	if len(samples) == 0 {
		return fmt.Errorf("config/samples must have samples, got none in %s", r.source)
	}
	for _, sample := range samples {
		content, err := os.ReadFile(sample)
		if err != nil {
			return err
		}
		if !strings.Contains(string(content), sampleImage) {
			return fmt.Errorf("%s must contain %q", sample, strings.TrimSpace(sampleImage))
		}
		stamped := strings.ReplaceAll(string(content), sampleImage, "image: "+r.image("worker")+"@"+digests["worker"]+"\n")
		name := "sample-" + filepath.Base(sample)
		if err := r.done(name, os.WriteFile(filepath.Join(r.output, name), []byte(stamped), 0o644)); err != nil {
			return err
		}
	}
	return nil
}
