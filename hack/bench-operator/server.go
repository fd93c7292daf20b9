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
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// server is an API server with its etcd, which doesn't wait for the disk: what
// is measured is not the disk.
type server struct {
	environment *envtest.Environment
	config      *rest.Config
	admin       *kubernetes.Clientset
}

// crds is where the types of our API are, from the top of the repository.
const crds = "config/crd/bases"

func startServer(ctx context.Context) (*server, error) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		assets, err := printed(exec.CommandContext(ctx, "go", "-C", "hack/cluster", "run", ".", "assets"))
		if err != nil {
			return nil, fmt.Errorf("find etcd and kube-apiserver: %w", err)
		}
		if err := os.Setenv("KUBEBUILDER_ASSETS", assets); err != nil {
			return nil, err
		}
	}
	s := &server{environment: &envtest.Environment{CRDDirectoryPaths: []string{crds}, ErrorIfCRDPathMissing: true}}
	var err error
	if s.config, err = s.environment.Start(); err != nil {
		return nil, fmt.Errorf("start an API server: %w", errors.Join(err, s.close()))
	}
	s.config.QPS = -1 // Nobody is to wait for the benchmark.
	if s.admin, err = kubernetes.NewForConfig(s.config); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *server) close() error { return s.environment.Stop() }

// user makes somebody known to the API server, and returns a kubeconfig. None of
// them is a system:master: their requests are counted by flow schemas, from
// which masters are exempt.
func (s *server) user(name string, groups ...string) ([]byte, error) {
	user, err := s.environment.AddUser(envtest.User{Name: name, Groups: groups}, nil)
	if err != nil {
		return nil, fmt.Errorf("make %s known to the API server: %w", name, err)
	}
	return user.KubeConfig()
}

// allow lets a user do everything.
func (s *server) allow(ctx context.Context, user string) error {
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}
	_, err := s.admin.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	return err
}

// profile writes where the API server spends its processor time, for a while,
// into a file; none if it has no name.
func (s *server) profile(ctx context.Context, file string, period time.Duration) error {
	if file == "" {
		return nil
	}
	text, err := s.admin.CoreV1().RESTClient().Get().AbsPath("/debug/pprof/profile").
		Param("seconds", strconv.Itoa(max(int(period.Seconds()), 1))).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("ask the API server for its profile: %w", err)
	}
	return os.WriteFile(file, text, 0o600)
}

// child is the process of that name that this one has started.
func child(name string) (int, error) {
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, folder := range folders {
		stat, err := os.ReadFile(filepath.Join(folder, "stat"))
		if err != nil {
			continue // It has ended.
		}
		_, rest, found := strings.Cut(string(stat), " ("+name+") ")
		fields := strings.Fields(rest)
		if found && len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			return strconv.Atoi(filepath.Base(folder))
		}
	}
	return 0, fmt.Errorf("no process %s was started", name)
}

// printed runs a command, and returns what it printed.
func printed(command *exec.Cmd) (string, error) {
	command.Env = append(os.Environ(), "GOWORK=off")
	said, err := command.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%s: %w: %s", strings.Join(command.Args, " "), err, strings.TrimSpace(string(failed.Stderr)))
	}
	return strings.TrimSpace(string(said)), err
}
