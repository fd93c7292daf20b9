// Package manifests builds what config/ deploys, for tests.
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

// Build builds a folder with kustomize, from the root of the repository.
func Build(ctx context.Context, root, folder string) ([]*unstructured.Unstructured, error) {
	tool, err := filepath.Abs(filepath.Join(root, "hack", "tools", "tool"))
	if err != nil {
		return nil, err
	}
	for _, read := range []string{"config", filepath.Join("hack", "tools", "kustomize")} { // For one folder is built from others.
		if err := program.DependOnFolder(filepath.Join(root, read)); err != nil {
			return nil, err
		}
	}
	command := exec.CommandContext(ctx, tool, "kustomize", "build", folder)
	command.Dir = root
	var complaints bytes.Buffer
	command.Stderr = &complaints
	text, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("kustomize build %s: %w\n%s", folder, err, complaints.Bytes())
	}
	return Parse(text)
}

// Parse reads objects from YAML.
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
