// Command kubeadm is that of Kubernetes. kind runs it in its nodes, and hack/cluster doesn't need it.
package main

import (
	"os"

	"k8s.io/kubernetes/cmd/kubeadm/app"
)

func main() {
	if err := app.Run(); err != nil {
		os.Exit(1)
	}
}
