// Package inject is the command kubectl conclave inject: the agent is added to manifests.
package inject

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/clusteraccess"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// options are the flags of inject.
type options struct {
	cluster      clusteraccess.Flags
	files        genericclioptions.FileNameFlags
	caBundleFile string
	settings     inject.Settings
}

// New returns the command.
func New() *cobra.Command {
	o := options{settings: inject.Settings{Options: inject.Options{}}, files: genericclioptions.FileNameFlags{
		Usage: "a file, folder or URL with manifests in YAML or JSON; - is stdin", Filenames: new([]string), Recursive: new(bool),
	}}
	cmd := &cobra.Command{
		Use:   "inject -f FILE",
		Short: "Inject the agent into the pods of manifests, as the webhook does",
		Long: `Inject the agent into the pods of manifests, as the webhook does, and print the
manifests. Use it in clusters without the webhook, or to see what the webhook
does.

Pods and pod templates opt in by the label ` + v1.LabelAgent + `: ` + v1.AgentEnabled + ` and the
annotation ` + v1.AnnotationGroups + `. --group adds both to all of them. All other
documents are printed unchanged.`,
		Example: `  kubectl conclave inject -f ledger.yaml | kubectl apply -f -
  kubectl conclave inject -f deployment.yaml --group ledger | kubectl apply -f -
  kubectl conclave inject -R -f deploy/ | kubectl apply -f -
  kustomize build . | kubectl conclave inject -f - | kubectl apply -f -`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.cluster.AddTo(cmd)
	o.addFlags(cmd.Flags())
	for _, name := range []string{"agent-image", "identity", "group"} {
		command.CompleteNothing(cmd, name)
	}
	for _, f := range o.settings.Options.Flags() {
		command.CompleteFrom(cmd, f.Name, f.Values)
	}
	return cmd
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	o.files.AddFlags(flags)
	flags.Lookup("recursive").Usage = "include the subfolders of folders"
	flags.StringVar(&o.settings.AgentImage, "agent-image", "", "the image of the agent (default: that of the installed operator)")
	for _, f := range o.settings.Options.Flags() {
		flags.Var(f, f.Name, f.Usage)
	}
	flags.StringVar(&o.settings.IdentityURL, "identity", "", "the URL of the identity service (default: that of the installed operator)")
	flags.StringVar(&o.settings.Group, "group", "", "add all pods to this group: the label and the annotation")
	flags.StringVar(&o.caBundleFile, "ca-bundle", "", "a PEM file with the CA certificates of the identity service (default: from the cluster)")
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "authorities" { // the former name of the flag
			name = "ca-bundle"
		}
		return pflag.NormalizedName(name)
	})
}

func (o *options) run(cmd *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}
	manifests, err := readManifests(cmd.Context(), o.files.ToOptions(), cmd.InOrStdin())
	if err != nil {
		return err
	}
	out, findings, err := o.inject(manifests)
	if err != nil {
		return err
	}
	notes := cmd.ErrOrStderr()
	if slices.ContainsFunc(findings, func(f inject.Finding) bool { return f.Outcome == inject.Injected }) {
		// The operator and the CA bundle may need requests to the cluster, so they are read only if a pod needs them.
		if err := o.findSettings(cmd.Context(), notes); err != nil {
			return err
		}
		if o.settings.CABundle, err = o.caBundle(cmd.Context(), notes); err != nil {
			return err
		}
		if out, findings, err = o.inject(manifests); err != nil {
			return err
		}
	}
	printFindings(notes, findings)
	_, err = cmd.OutOrStdout().Write(out)
	return err
}

func (o *options) check() error {
	if len(*o.files.Filenames) == 0 {
		return command.UsageErrorf("-f must be a file, a folder or a URL, or - for stdin")
	}
	if o.settings.Group != "" {
		if problems := validation.IsDNS1123Label(o.settings.Group); len(problems) > 0 {
			return command.UsageErrorf("--group must be the name of a group, such as ledger, got %q", o.settings.Group)
		}
	}
	if err := o.settings.Options.Check(); err != nil {
		return command.UsageErrorf("%s", err)
	}
	if o.settings.IdentityURL == "" {
		return nil
	}
	u, err := url.Parse(o.settings.IdentityURL)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return command.UsageErrorf("--identity must be an https URL, such as https://conclave-identity.conclave-system.svc, got %q", o.settings.IdentityURL)
	}
	return nil
}

// findSettings completes the settings with those of the installed operator.
func (o *options) findSettings(ctx context.Context, notes io.Writer) error {
	if o.settings.AgentImage != "" && o.settings.IdentityURL != "" {
		return nil
	}
	found, err := o.installedOperator(ctx)
	switch {
	case err != nil && o.settings.AgentImage == "":
		return fmt.Errorf("cannot find the image of the agent (%w): set --agent-image", err)
	case err != nil:
		found = &clusteraccess.Operator{Namespace: clusteraccess.DefaultOperatorNamespace}
	case o.settings.AgentImage == "" && found.AgentImage == "":
		return fmt.Errorf("cannot find the image of the agent (the operator in namespace %s has no AGENT_IMAGE): set --agent-image", found.Namespace)
	case o.settings.AgentImage == "":
		fmt.Fprintf(notes, "the agent's image is %s, that of the operator in namespace %s\n", found.AgentImage, found.Namespace)
	}
	o.settings.AgentImage = cmp.Or(o.settings.AgentImage, found.AgentImage)
	o.settings.IdentityURL = cmp.Or(o.settings.IdentityURL, clusteraccess.IdentityURL(found.Namespace))
	if err := completeOptions(o.settings.Options, found.Arguments); err != nil {
		return fmt.Errorf("cannot use the arguments of the operator in namespace %s: %w", found.Namespace, err)
	}
	return nil
}

// completeOptions sets those options that aren't set to the values in the arguments of the
// operator.
func completeOptions(o inject.Options, arguments []string) error {
	operators := inject.Options{}
	flags := pflag.NewFlagSet("operator", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	for _, f := range operators.Flags() {
		flags.Var(f, f.Name, f.Usage)
	}
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	for name, value := range operators {
		if _, set := o[name]; !set {
			o[name] = value
		}
	}
	return o.Check()
}

func (o *options) installedOperator(ctx context.Context) (*clusteraccess.Operator, error) {
	ctx, cancel := context.WithTimeout(ctx, clusteraccess.ClusterTimeout)
	defer cancel()
	connected, err := o.cluster.Connect()
	if err != nil {
		return nil, err
	}
	namespace, err := o.cluster.Namespace()
	if err != nil {
		return nil, err
	}
	return clusteraccess.FindOperator(ctx, connected, namespace)
}

// caBundle reads the CA bundle from the file, if there is one, or else from the
// cluster. Without a cluster, it is empty.
func (o *options) caBundle(ctx context.Context, notes io.Writer) (string, error) {
	if o.caBundleFile != "" {
		text, err := os.ReadFile(o.caBundleFile)
		if err != nil {
			return "", command.UsageErrorf("--ca-bundle: %s", err)
		}
		if block, _ := pem.Decode(text); block == nil || block.Type != "CERTIFICATE" {
			return "", command.UsageErrorf("--ca-bundle must be a file with certificates in PEM: %s contains none", o.caBundleFile)
		}
		return string(text), nil
	}
	text, err := o.publishedCABundle(ctx)
	if err != nil {
		fmt.Fprintf(notes, "CONCLAVE_CA is not set; agents trust the CA bundle in their groups' ConfigMaps (%s)\n", err)
	}
	return text, nil
}

// publishedCABundle reads the CA bundle from the ConfigMap of any group of the
// namespace, which users who may apply pods can usually read.
func (o *options) publishedCABundle(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, clusteraccess.ClusterTimeout)
	defer cancel()
	connected, err := o.cluster.Connect()
	if err != nil {
		return "", err
	}
	namespace, err := o.cluster.Namespace()
	if err != nil {
		return "", err
	}
	var list corev1.ConfigMapList
	if err := connected.List(ctx, &list, client.InNamespace(namespace), client.HasLabels{v1.LabelGroup}); err != nil {
		return "", clusteraccess.RequestError(err)
	}
	for i := range list.Items {
		if text := list.Items[i].Data[control.CABundleKey]; text != "" {
			return text, nil
		}
	}
	return "", fmt.Errorf("no group found in namespace %s", namespace)
}

// inject returns the manifests with the agent in them, and the findings.
func (o *options) inject(manifests []manifest) ([]byte, []inject.Finding, error) {
	var (
		out      bytes.Buffer
		findings []inject.Finding
	)
	for _, m := range manifests {
		for i, document := range m.documents {
			patched, found, err := o.injectDocument(document)
			if err != nil {
				return nil, nil, command.UsageErrorf("document %d of %s: %s", i+1, m.name, command.SingleLine(err))
			}
			findings = append(findings, found...)
			if out.Len() > 0 {
				out.WriteString("---\n")
			}
			out.Write(bytes.TrimSuffix(patched, []byte("\n")))
			out.WriteString("\n")
		}
	}
	return out.Bytes(), findings, nil
}

func (o *options) injectDocument(document []byte) ([]byte, []inject.Finding, error) {
	object, err := yaml.YAMLToJSON(document)
	if err != nil {
		return nil, nil, err
	}
	findings, err := inject.Find(object, o.settings)
	if err != nil {
		return nil, nil, err
	}
	patched, err := applyFindings(document, findings)
	return patched, findings, err
}

// applyFindings applies the operations of the findings to a document. The result is
// YAML, or the unchanged document if there are no operations.
func applyFindings(document []byte, findings []inject.Finding) ([]byte, error) {
	var operations []inject.Operation
	for _, f := range findings {
		operations = append(operations, f.Operations...)
	}
	if len(operations) == 0 {
		return document, nil
	}
	// Strict, since the conversion would drop all but one of equal keys.
	object, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(operations)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(raw)
	if err != nil {
		return nil, err
	}
	if object, err = patch.Apply(object); err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(object)
}

// printFindings prints a line for each pod or template that has opted in, or
// seems to.
func printFindings(w io.Writer, findings []inject.Finding) {
	optedIn := false
	for _, f := range findings {
		switch f.Outcome {
		case inject.Injected:
			fmt.Fprintf(w, "%s: agent injected\n", f.Object)
		case inject.AlreadyInjected:
			fmt.Fprintf(w, "%s: unchanged, it has the agent already\n", f.Object)
		case inject.LabelMisplaced:
			fmt.Fprintf(w, "%s: unchanged, the label %s has no effect here; move it to the pod template\n", f.Object, v1.LabelAgent)
		case inject.NotOptedIn:
			continue
		}
		optedIn = true
	}
	if !optedIn {
		fmt.Fprintf(w, "no agent injected: no pod has the label %s: %s\n", v1.LabelAgent, v1.AgentEnabled)
	}
}
