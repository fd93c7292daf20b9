package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// server is an API server with etcd. Its etcd doesn't sync to the disk, so that the results don't depend on the disk.
type server struct {
	environment *envtest.Environment
	config      *rest.Config
	admin       *kubernetes.Clientset
}

// crds is the folder of the CRDs, relative to the top of the repository.
const crds = "config/crd/bases"

func startServer(ctx context.Context) (*server, error) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		assets, err := outputOf(exec.CommandContext(ctx, "hack/kubernetes/build", "kubernetes"))
		if err != nil {
			return nil, fmt.Errorf("cannot find etcd and kube-apiserver: %w", err)
		}
		if err := os.Setenv("KUBEBUILDER_ASSETS", assets); err != nil {
			return nil, err
		}
	}
	s := &server{environment: &envtest.Environment{CRDDirectoryPaths: []string{crds}, ErrorIfCRDPathMissing: true}}
	// Without this address, which nobody uses, an API server doesn't start where no route leads out, as in the namespace
	// of compare.
	s.environment.ControlPlane.GetAPIServer().Configure().Set("advertise-address", "192.0.2.1")
	var err error
	if s.config, err = s.environment.Start(); err != nil {
		return nil, fmt.Errorf("cannot start an API server: %w", errors.Join(err, s.close()))
	}
	s.config.QPS = -1 // Disable client-side rate limits.
	if s.admin, err = kubernetes.NewForConfig(s.config); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *server) close() error { return s.environment.Stop() }

// addUser creates a user and writes its kubeconfig. The user isn't in group system:masters: requests of that group are
// exempt from the flow schemas by which requests are counted.
func (s *server) addUser(kubeconfig, name string, groups ...string) error {
	user, err := s.environment.AddUser(envtest.User{Name: name, Groups: groups}, nil)
	if err != nil {
		return fmt.Errorf("cannot add user %s: %w", name, err)
	}
	text, err := user.KubeConfig()
	if err != nil {
		return err
	}
	return os.WriteFile(kubeconfig, text, 0o600)
}

// childPID returns the process ID of this process's child with this name.
func childPID(name string) (int, error) {
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, folder := range folders {
		stat, err := os.ReadFile(filepath.Join(folder, "stat"))
		if err != nil {
			continue // The process has exited.
		}
		_, rest, found := strings.Cut(string(stat), " ("+name+") ")
		fields := strings.Fields(rest)
		if found && len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			return strconv.Atoi(filepath.Base(folder))
		}
	}
	return 0, fmt.Errorf("cannot find a child process %s", name)
}

// outputOf runs a command and returns its standard output.
func outputOf(command *exec.Cmd) (string, error) {
	command.Env = append(os.Environ(), "GOWORK=off")
	output, err := command.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%s: %w: %s", strings.Join(command.Args, " "), err, strings.TrimSpace(string(failed.Stderr)))
	}
	return strings.TrimSpace(string(output)), err
}
