// Package manifests builds the manifests in config/ for tests and tools.
package manifests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/conclave-dev/conclave/internal/testing/program"
)

// Build runs kustomize build for a folder, which is relative to the root of the repository.
func Build(ctx context.Context, root, folder string) ([]*unstructured.Unstructured, error) {
	tool, err := filepath.Abs(filepath.Join(root, "hack", "tools", "tool"))
	if err != nil {
		return nil, err
	}
	for _, dependency := range []string{"config", filepath.Join("hack", "tools")} { // A folder may include others.
		if err := program.DependOnFolder(filepath.Join(root, dependency)); err != nil {
			return nil, err
		}
	}
	command := exec.CommandContext(ctx, tool, "kustomize", "build", folder)
	command.Dir = root
	var stderr bytes.Buffer
	command.Stderr = &stderr
	text, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("kustomize build %s: %w\n%s", folder, err, stderr.Bytes())
	}
	return Parse(text)
}

// Parse decodes objects from YAML.
func Parse(text []byte) ([]*unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		switch {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case len(object.Object) > 0:
			objects = append(objects, object)
		}
	}
}
