package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// operator is a program that elects its active replica. Three replicas run on this machine, each with an address of its
// own.
type operator struct {
	name, title string
	// module has the program in the folder command. Without it, the program is one of the cluster.
	module, version, command string
	// local are changes of changed with which replicas can run beside each other on one machine. By default, changed is
	// the program's main.go.
	local   []string
	changed string
	// adapted are the changes with which the program uses the adapter for controller-runtime in place of a Lease.
	adapted []string
	// lease is the Lease that it uses by default.
	leaseNamespace, lease string
	crds                  string // a folder in module
	// config is written to a file. $HOST and $CERTS stand for the replica's address, and for a folder with a certificate.
	config string
	// health is the URL by which an agent checks a program that uses no adapter. The agents carry clients to it.
	health string
	// adaptedConfig are changes of config with the adapter.
	adaptedConfig []string
	arguments     []string // $CONFIG and $KUBECONFIG stand for files, $INDEX for a number, $LEASE for whether it elects
	environment   []string
	probe         probe
	settings      string
}

// adaptedImports replaces the first line of the imports.
const adaptedImports = "import (\n\tconclave " +
	"\"github.com/conclave-dev/conclave/client\"\n\t\"github.com/conclave-dev/conclave/controllerruntime\"\n"

var operators = []operator{
	{
		name: "kube-scheduler", title: "kube-scheduler", leaseNamespace: "kube-system", lease: "kube-scheduler",
		arguments: []string{
			"--kubeconfig=$KUBECONFIG", "--bind-address=$HOST", "--secure-port=10259",
			"--authentication-skip-lookup=true", "--leader-elect=true",
		},
		probe: podProbe(), settings: "The probe creates a pod until it has a node.",
	},
	{
		name: "kueue", title: "Kueue", module: "sigs.k8s.io/kueue", version: "v0.17.0", command: "cmd/kueue",
		local: []string{`metricsCertPath := "/etc/kueue/metrics/certs"`, `metricsCertPath := os.Getenv("CERTS")`},
		adapted: []string{
			"import (\n", adaptedImports,
			"mgr, err := ctrl.NewManager(kubeConfig, options)",
			"election := controllerruntime.New(\"group-0\", conclave.At(os.Getenv(\"CONCLAVE\")))\n\tmgr, err := " +
				"ctrl.NewManager(kubeConfig, election.Options(options))",
			"mgr.Start(ctx); err", "election.Run(ctx, mgr.Start); err",
		},
		leaseNamespace: "kueue-system", lease: "c1f6bfd2.kueue.x-k8s.io", crds: "config/components/crd/bases",
		config: kueueConfig,
		// Standbys look at a change again after this time.
		adaptedConfig: []string{
			"leaderElect: true,", "leaderElect: true, leaseDuration: 1s, renewDeadline: 700ms, retryPeriod: 200ms,",
		},
		arguments:   []string{"--config=$CONFIG", "--feature-gates=VisibilityOnDemand=false"},
		environment: []string{"POD_NAMESPACE=kueue-system", "CERTS=$CERTS"},
		probe:       clusterQueueProbe(),
		settings: "Its manifest's configuration for the election. A standby of Kueue postpones " +
			"changes that it sees, by `leaderElection.leaseDuration` (15 s): so that is 1 s with Conclave, where nothing else " +
			"uses it. The probe stops and resumes a ClusterQueue until the condition `Active` follows.",
	},
	{
		name: "keda", title: "KEDA", module: "github.com/kedacore/keda/v2", version: "v2.21.0", command: "cmd/operator",
		local: []string{"Port: 9443,", `Port: 9443, Host: os.Getenv("HOST"),`},
		adapted: []string{
			"import (\n", adaptedImports,
			"mgr, err := ctrl.NewManager(cfg, ctrl.Options{",
			"election := controllerruntime.New(\"group-0\", conclave.At(os.Getenv(\"CONCLAVE\")))\n\tmgr, err := " +
				"ctrl.NewManager(cfg, election.Options(ctrl.Options{",
			"RetryPeriod:             retryPeriod,\n\t})", "RetryPeriod:             retryPeriod,\n\t}))",
			"mgr.Start(ctx); err", "election.Run(ctx, mgr.Start); err",
		},
		leaseNamespace: "keda", lease: "operator.keda.sh", crds: "config/crd/bases",
		arguments: []string{
			"--leader-elect", "--metrics-bind-address=$HOST:8080", "--health-probe-bind-address=$HOST:8081",
			"--metrics-service-bind-address=$HOST:9666",
			"--cert-dir=$CERTS", "--enable-cert-rotation=false",
		},
		environment: []string{"POD_NAMESPACE=keda", "KEDA_CLUSTER_OBJECT_NAMESPACE=keda", "WATCH_NAMESPACE=", "HOST=$HOST"},
		probe:       scaledObjectProbe(), settings: "The arguments of its manifest for the election. The probe changes " +
			"`maxReplicaCount` of a ScaledObject until its HorizontalPodAutoscaler follows.",
	},
	{
		name: "endpoint-picker", title: "endpoint picker", module: "sigs.k8s.io/gateway-api-inference-extension",
		version: "v1.3.0", command: "cmd/epp", changed: "internal/runnable/grpc.go",
		local: []string{
			"\"net\"\n", "\"net\"\n\t\"os\"\n", `Sprintf(":%d", port)`, `Sprintf("%s:%d", os.Getenv("HOST"), port)`,
		},
		leaseNamespace: "default", lease: "epp-default-probe.gateway-api-inference-extension.sigs.k8s.io",
		crds: "config/crd/bases", health: "http://127.0.0.1:909$INDEX/metrics",
		config: pickerConfig,
		arguments: []string{
			"--config-file=$CONFIG", "--pool-name=probe", "--pool-namespace=default", "--tracing=false",
			"--metrics-endpoint-auth=false", "--metrics-port=909$INDEX", "--ha-enable-leader-election=$LEASE",
		},
		environment: []string{"HOST=$HOST"},
		probe:       pickerProbe(), settings: "With Conclave as in [the recipe](../recipes/inference-router.md), without " +
			"the adapter. A fault but silence hits only the picker. The probe opens a connection until the health service of " +
			"a picker that is ready has answered. With Conclave, the agents carry it.",
	},
}

const kueueConfig = `apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: kueue-system
health: {healthProbeBindAddress: "$HOST:8081"}
metrics: {bindAddress: "$HOST:8443"}
webhook: {host: $HOST, port: 9443, certDir: $CERTS}
leaderElection: {leaderElect: true, resourceNamespace: kueue-system, resourceName: c1f6bfd2.kueue.x-k8s.io}
internalCertManagement: {enable: false}
integrations: {frameworks: [batch/job]}
`

// pickerConfig is that of the chart.
const pickerConfig = `apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: queue-scorer}, {type: kv-cache-utilization-scorer}, {type: prefix-cache-scorer}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer, weight: 2},
  {pluginRef: kv-cache-utilization-scorer, weight: 2}, {pluginRef: prefix-cache-scorer}]}]
`

// folder is where the program is built. Adapted programs use the adapter.
func (o *operator) folder(adapted bool) (string, error) {
	cache, err := os.UserCacheDir()
	name := o.name + "-" + o.version
	if adapted && o.adapted != nil {
		name += "-adapted"
	}
	return filepath.Join(cache, "conclave", "operators", name), err
}

// program returns the program, and the folder of its CRDs.
func (o *operator) program(assets string, adapted bool) (file, crds string, err error) {
	if o.module == "" {
		return filepath.Join(assets, o.name), "", nil
	}
	folder, err := o.folder(adapted)
	return filepath.Join(folder, o.name), filepath.Join(folder, o.crds), err
}

// build builds the program. It needs the network.
func (o *operator) build(ctx context.Context, repository string, adapted bool) error {
	folder, err := o.folder(adapted)
	if err != nil {
		return err
	}
	if err := o.source(ctx, folder, repository, adapted); err != nil {
		return fmt.Errorf("%s: %w", o.title, err)
	}
	_, err = runIn(ctx, folder, "go", "build", "-mod=mod", "-o", o.name, "./"+o.command)
	return err
}

// operators returns those that are measured.
func (o *options) operators() (chosen []*operator) {
	for i := range operators {
		if len(o.only) == 0 || slices.Contains(o.only, operators[i].name) {
			chosen = append(chosen, &operators[i])
		}
	}
	return chosen
}

// buildOperators builds their programs.
func buildOperators(ctx context.Context, chosen []*operator, progress io.Writer) error {
	repository, err := os.Getwd()
	if err != nil {
		return err
	}
	for _, of := range chosen {
		for _, election := range of.elections() {
			if of.module == "" || election == byConclave && of.adapted == nil {
				continue
			}
			fmt.Fprintf(progress, "building %s %s (%s): minutes, the first time\n", of.title, of.version, election)
			if err := of.build(ctx, repository, election == byConclave); err != nil {
				return err
			}
		}
	}
	return nil
}

// source writes the source of the program, with the changes that this machine and the adapter need.
func (o *operator) source(ctx context.Context, folder, repository string, adapted bool) error {
	output, err := runIn(ctx, os.TempDir(), "go", "mod", "download", "-json", o.module+"@"+o.version)
	if err != nil {
		return err
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(output, &module); err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.CopyFS(folder, os.DirFS(module.Dir)); err != nil {
		return err
	}
	changes := o.local
	if adapted {
		changes = append(slices.Clip(changes), o.adapted...)
	}
	main := filepath.Join(folder, cmp.Or(o.changed, filepath.Join(o.command, "main.go")))
	text, err := os.ReadFile(main)
	if err != nil {
		return err
	}
	source := string(text)
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(source, changes[i]) {
			return fmt.Errorf("%s has no %q: adjust the table of operators to %s", main, changes[i], o.version)
		}
		source = strings.Replace(source, changes[i], changes[i+1], 1)
	}
	if err := errors.Join(replace(main, source), os.Chmod(filepath.Join(folder, "go.mod"), 0o600),
		os.Chmod(filepath.Join(folder, "go.sum"), 0o600)); err != nil || !adapted {
		return err
	}
	edit := []string{"mod", "edit"}
	for _, ours := range []string{"client", "controllerruntime"} {
		path := "github.com/conclave-dev/conclave/" + ours
		edit = append(edit, "-require="+path+"@v0.1.0", "-replace="+path+"="+filepath.Join(repository, ours))
	}
	_, err = runIn(ctx, folder, "go", edit...)
	return err
}

// replace writes a file that may be read-only.
func replace(path, content string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o600)
}

func runIn(ctx context.Context, folder, name string, arguments ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, name, arguments...)
	command.Dir = folder
	command.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	command.WaitDelay = time.Second
	var errors strings.Builder
	command.Stderr = &errors
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(arguments, " "), err, errors.String())
	}
	return output, nil
}
