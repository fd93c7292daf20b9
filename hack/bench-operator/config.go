package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// manifests are the objects of config/default.
type manifests []*unstructured.Unstructured

func readManifests(ctx context.Context) (manifests, error) {
	text, err := outputOf(exec.CommandContext(ctx, "hack/tools/tool", "kustomize", "build", "config/default"))
	if err != nil {
		return nil, fmt.Errorf("cannot build config/default: %w", err)
	}
	var all manifests
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("cannot build config/default: %w", err)
		}
		all = append(all, object)
	}
}

// create creates the objects of these kinds.
func (m manifests) create(ctx context.Context, c client.Client, kinds ...string) error {
	for _, object := range m {
		if !slices.Contains(kinds, object.GetKind()) {
			continue
		}
		if err := c.Create(ctx, object.DeepCopy()); err != nil {
			return fmt.Errorf("cannot create %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// deployment returns the manager's Deployment.
func (m manifests) deployment() (*appsv1.Deployment, error) {
	for _, object := range m {
		if object.GetKind() == "Deployment" && object.GetName() == managerName {
			found := &appsv1.Deployment{}
			err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, found)
			if err == nil && len(found.Spec.Template.Spec.Containers) == 0 {
				err = errors.New("the manager's Deployment has no containers")
			}
			return found, err
		}
	}
	return nil, fmt.Errorf("config/default must contain a Deployment %s", managerName)
}
