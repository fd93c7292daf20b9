// Package report is the command kubectl conclave report: one archive with what is needed to find the cause of a
// problem.
package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/plugin/output"
)

type options struct {
	cluster  clusteraccess.Flags
	file     string
	commands func() []*cobra.Command
}

// New returns the command. The archive has the output of each of the commands, which it runs with the same flags.
func New(commands func() []*cobra.Command) *cobra.Command {
	o := options{commands: commands}
	cmd := &cobra.Command{
		Use:   "report GROUP",
		Short: "Collect what others need to find the cause of a problem",
		Long: `Write one archive about a group: the output of status, explain, check and
version, the group and its pods, their Events, the journals and logs of its
agents, and the logs of the operator. Collect it soon: agents keep journals in
memory, and Kubernetes keeps Events for an hour.

It reads no Secrets or ConfigMaps. Of pods it keeps the names, labels, nodes,
images and statuses, but no environment, arguments or annotations. Private keys
and credentials in logs are replaced. Names of pods, nodes and images and
addresses remain: look at the files before you give them to others.

Permissions: those of explain and check; list events; get pods/log, also of the
operator. What you may not read is missing.`,
		Example: `  kubectl conclave report ledger
  kubectl conclave report ledger --file ledger.tar.gz`,
		Args:              clusteraccess.RequireGroup,
		ValidArgsFunction: o.cluster.CompleteGroup,
		RunE:              o.run,
	}
	o.cluster.AddTo(cmd)
	cmd.Flags().StringVarP(&o.file, "file", "f", "",
		"the archive to create; by default conclave-NAMESPACE-GROUP-TIME.tar.gz in this directory")
	command.CompleteFile(cmd, "file")
	return cmd
}

func (o *options) run(cmd *cobra.Command, args []string) error {
	group, err := o.cluster.Group(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	now := o.cluster.Now().UTC()
	if o.file == "" {
		o.file = fmt.Sprintf("conclave-%s-%s-%s.tar.gz", group.Namespace, group.Name, now.Format("20060102-150405"))
	}
	var a *archive
	if err := output.CreateFile(cmd.Context(), "file", o.file, func(ctx context.Context, file io.Writer) error {
		a = newArchive(file, strings.TrimSuffix(strings.TrimSuffix(filepath.Base(o.file), ".gz"), ".tar"), now)
		return errors.Join(o.collect(ctx, cmd, group, a), a.close(about(group)))
	}); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %d files\n", o.file, a.files)
	for _, m := range a.missing {
		fmt.Fprintf(cmd.ErrOrStderr(), "missing: %s\n", m)
	}
	return nil
}

func about(g *v1.ElectionGroup) string {
	return fmt.Sprintf(`What "kubectl conclave report" collected about the group %s/%s.

The output of commands is in *.txt, objects are in *.yaml, what the agents did is in journals, and logs are in logs.
Credentials in them were replaced by %q. Names of pods, nodes and images and addresses weren't: look at the files before
you give them to others.
`, g.Namespace, g.Name, removed)
}

// collect fills the archive. An error ends the command; what can't be read is missing in the archive.
func (o *options) collect(ctx context.Context, cmd *cobra.Command, group *v1.ElectionGroup, a *archive) error {
	config, err := o.cluster.RestConfig()
	if err != nil {
		return err
	}
	connected, err := o.cluster.Connect()
	if err != nil {
		return err
	}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, c := range o.commands() {
		a.add(c.Name()+".txt", func() ([]byte, error) { return outputOf(ctx, cmd, c, group.Name) })
	}
	group.ManagedFields = nil
	a.addObject("group.yaml", func() (any, error) { return group, nil })
	pods, err := podsOf(ctx, connected, group)
	a.addObject("pods.yaml", func() (any, error) { return shortened(pods), err })
	a.add("events.txt", func() ([]byte, error) { return events(ctx, core, group) })
	o.addJournals(ctx, group, a)
	addLogs(ctx, core, "logs/", pods, v1.AgentContainer, a)
	operators, err := operatorPods(ctx, connected)
	if err != nil {
		a.miss("logs/operator", err)
	}
	addLogs(ctx, core, "logs/operator/", operators, "manager", a)
	return nil
}

// outputOf runs another command of the plugin with the flags of this one, and returns what it prints.
func outputOf(ctx context.Context, cmd, other *cobra.Command, group string) ([]byte, error) {
	var args []string
	if strings.Contains(other.Use, "GROUP") {
		args = append(args, group)
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, value := range values {
			if f.Name != "file" {
				args = append(args, "--"+f.Name+"="+value)
			}
		}
	})
	var text strings.Builder
	other.SetArgs(args)
	other.SetOut(&text)
	other.SetErr(&text)
	other.SilenceErrors, other.SilenceUsage = true, true
	if err := other.ExecuteContext(ctx); err != nil { // check fails if it finds a problem
		fmt.Fprintln(&text, "error:", err)
	}
	return []byte(text.String()), nil
}

// podsOf returns the pods of the group's members.
func podsOf(ctx context.Context, c client.Client, group *v1.ElectionGroup) ([]corev1.Pod, error) {
	var all corev1.PodList
	if err := c.List(ctx, &all, client.InNamespace(group.Namespace)); err != nil {
		return nil, clusteraccess.RequestError(err)
	}
	return slices.DeleteFunc(all.Items, func(p corev1.Pod) bool {
		return !slices.ContainsFunc(group.Status.Processes, func(row v1.Process) bool { return row.Pod == p.Name })
	}), nil
}

func operatorPods(ctx context.Context, c client.Client) ([]corev1.Pod, error) {
	deployments, err := clusteraccess.ListOperators(ctx, c)
	if err != nil {
		return nil, clusteraccess.RequestError(err)
	}
	var pods []corev1.Pod
	for i := range deployments {
		var list corev1.PodList
		if err := c.List(ctx, &list, client.InNamespace(deployments[i].Namespace),
			client.MatchingLabels(deployments[i].Spec.Selector.MatchLabels)); err != nil {
			return pods, clusteraccess.RequestError(err)
		}
		pods = append(pods, list.Items...)
	}
	return pods, nil
}

// shortened returns what the archive has of pods.
func shortened(pods []corev1.Pod) []corev1.Pod {
	containers := func(all []corev1.Container) (short []corev1.Container) {
		for _, c := range all {
			short = append(short, corev1.Container{Name: c.Name, Image: c.Image, Resources: c.Resources})
		}
		return short
	}
	short := make([]corev1.Pod, len(pods))
	for i := range pods {
		p := &pods[i]
		short[i].ObjectMeta = metav1.ObjectMeta{
			Name: p.Name, UID: p.UID, Labels: p.Labels,
			CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp,
		}
		short[i].Spec.NodeName, short[i].Status = p.Spec.NodeName, p.Status
		short[i].Spec.InitContainers = containers(p.Spec.InitContainers)
		short[i].Spec.Containers = containers(p.Spec.Containers)
	}
	return short
}
