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

// deployed is what config/default deploys.
type deployed []*unstructured.Unstructured

func readConfig(ctx context.Context) (deployed, error) {
	text, err := printed(exec.CommandContext(ctx, "hack/tools/tool", "kustomize", "build", "config/default"))
	if err != nil {
		return nil, fmt.Errorf("read what is deployed: %w", err)
	}
	var all deployed
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read what is deployed: %w", err)
		}
		all = append(all, object)
	}
}

// create creates the objects of some kinds.
func (d deployed) create(ctx context.Context, c client.Client, these ...string) error {
	for _, object := range d {
		if !slices.Contains(these, object.GetKind()) {
			continue
		}
		if err := c.Create(ctx, object.DeepCopy()); err != nil {
			return fmt.Errorf("create %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// deployment is the manager's.
func (d deployed) deployment() (*appsv1.Deployment, error) {
	for _, object := range d {
		if object.GetKind() == "Deployment" && object.GetName() == managersName {
			found := &appsv1.Deployment{}
			err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, found)
			if err == nil && len(found.Spec.Template.Spec.Containers) == 0 {
				err = errors.New("it has no containers")
			}
			return found, err
		}
	}
	return nil, fmt.Errorf("config/default has no Deployment %s", managersName)
}
