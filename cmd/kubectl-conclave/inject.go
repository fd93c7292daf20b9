package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/cli/command"
	"github.com/conclave-dev/conclave/internal/operator/inject"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

type injector struct {
	cluster
	file, authorities string
	settings          inject.Settings
}

func newInject() *cobra.Command {
	var in injector
	cmd := &cobra.Command{
		Use:   "inject -f FILE",
		Short: "Put the agent into the pods of a manifest, as the webhook does",
		Long: `Put the agent into the pods of a manifest, as the webhook does, and write the
manifest to stdout. It is for clusters without the webhook, and to see what
that does.

Pods and templates of pods get the agent if they have the label
` + v1.LabelAgent + `: ` + v1.AgentEnabled + ` and the annotation ` + v1.AnnotationGroups + `.
Everything else is written as it was read.`,
		Example: `  kubectl conclave inject -f ledger.yaml | kubectl apply -f -
  kustomize build . | kubectl conclave inject -f - | kubectl apply -f -`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return in.run(cmd) },
	}
	in.register(cmd.Flags())
	f := cmd.Flags()
	f.StringVarP(&in.file, "filename", "f", "", "the manifest, in YAML or JSON; - is stdin")
	f.StringVar(&in.settings.AgentImage, "agent-image", defaultImage(), "the agent's image")
	f.StringVar(&in.settings.IdentityURL, "identity", "https://conclave-identity.conclave-system.svc", "where agents get their certificates")
	f.StringVar(&in.authorities, "authorities", "", "a file with the certificates that vouch for that, in PEM (default: asks the cluster)")
	return cmd
}

// defaultImage is that of the same version.
func defaultImage() string {
	if version == "" {
		return ""
	}
	return "conclave/agent:" + version
}

func (in *injector) run(cmd *cobra.Command) error {
	if err := in.check(); err != nil {
		return err
	}
	documents, err := in.read(cmd.InOrStdin())
	if err != nil {
		return err
	}
	out, found, err := in.inject(documents)
	if err != nil {
		return err
	}
	notes := cmd.ErrOrStderr()
	if slices.ContainsFunc(found, func(f inject.Finding) bool { return f.Outcome == inject.Injected }) {
		// Only now it is worth asking whom to trust.
		if in.settings.CABundle, err = in.trusted(cmd.Context(), notes); err != nil {
			return err
		}
		if out, found, err = in.inject(documents); err != nil {
			return err
		}
	}
	tell(notes, found)
	_, err = cmd.OutOrStdout().Write(out)
	return err
}

func (in *injector) check() error {
	if in.file == "" {
		return command.UsageErrorf("-f must name a manifest, or - for stdin")
	}
	if in.settings.AgentImage == "" {
		return command.UsageErrorf("--agent-image must name the agent's image, such as conclave/agent:1.0")
	}
	u, err := url.Parse(in.settings.IdentityURL)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return command.UsageErrorf("--identity must be https, such as https://conclave-identity.conclave-system.svc, not %q", in.settings.IdentityURL)
	}
	return nil
}

// trusted are the authorities of a file, or of the cluster.
func (in *injector) trusted(ctx context.Context, notes io.Writer) (string, error) {
	if in.authorities != "" {
		text, err := os.ReadFile(in.authorities)
		if err != nil {
			return "", command.UsageErrorf("--authorities: %s", err)
		}
		if block, _ := pem.Decode(text); block == nil || block.Type != "CERTIFICATE" {
			return "", command.UsageErrorf("--authorities must be a file with certificates in PEM: there is none in %s", in.authorities)
		}
		return string(text), nil
	}
	text, err := in.published(ctx)
	if err != nil {
		fmt.Fprintf(notes, "CONCLAVE_CA is left out: agents trust the authorities in their groups' ConfigMaps (%s)\n", err)
	}
	return text, nil
}

// clusterPatience is how long to wait for a cluster that inject can do without.
const clusterPatience = 5 * time.Second

// published are the authorities in the ConfigMap of any group of the namespace:
// whoever may apply pods may mostly read these.
func (in *injector) published(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterPatience)
	defer cancel()
	connected, err := in.connect()
	if err != nil {
		return "", err
	}
	namespace, err := in.namespace()
	if err != nil {
		return "", err
	}
	var list corev1.ConfigMapList
	if err := connected.List(ctx, &list, client.InNamespace(namespace), client.HasLabels{v1.LabelGroup}); err != nil {
		return "", refused(err)
	}
	for i := range list.Items {
		if text := list.Items[i].Data[control.CABundleKey]; text != "" {
			return text, nil
		}
	}
	return "", fmt.Errorf("there is no group yet in namespace %s to ask", namespace)
}

// read reads the documents of the manifest.
func (in *injector) read(stdin io.Reader) ([][]byte, error) {
	from := stdin
	if in.file != "-" {
		file, err := os.Open(in.file)
		if err != nil {
			return nil, command.UsageErrorf("-f: %s", err)
		}
		defer file.Close()
		from = file
	}
	reader := bufio.NewReader(from)
	if isJSON(reader) {
		return objects(json.NewDecoder(reader))
	}
	var documents [][]byte
	for all := utilyaml.NewYAMLReader(reader); ; {
		document, err := all.Read()
		switch {
		case errors.Is(err, io.EOF):
			return documents, nil
		case err != nil:
			return nil, fmt.Errorf("read the manifest: %w", err)
		}
		documents = append(documents, document)
	}
}

// isJSON: kubectl writes one object after the other, which YAML doesn't allow.
func isJSON(r *bufio.Reader) bool {
	for n := 1; ; n++ {
		start, err := r.Peek(n)
		if err != nil {
			return false
		}
		if last := start[n-1]; !bytes.ContainsRune([]byte(" \t\r\n"), rune(last)) {
			return last == '{'
		}
	}
}

func objects(decoder *json.Decoder) ([][]byte, error) {
	var documents [][]byte
	for {
		var document json.RawMessage
		err := decoder.Decode(&document)
		switch {
		case errors.Is(err, io.EOF):
			return documents, nil
		case err != nil:
			return nil, command.UsageErrorf("-f: object %d is no JSON: %s", len(documents)+1, err)
		}
		documents = append(documents, append(document, '\n'))
	}
}

// inject returns the manifest with the agent in it, and what was found.
func (in *injector) inject(documents [][]byte) ([]byte, []inject.Finding, error) {
	var (
		out   bytes.Buffer
		found []inject.Finding
	)
	for i, document := range documents {
		here, err := in.find(document)
		if err != nil {
			return nil, nil, command.UsageErrorf("-f: document %d: %s", i+1, oneLine(err))
		}
		if document, err = patched(document, here); err != nil {
			return nil, nil, command.UsageErrorf("-f: document %d: %s", i+1, oneLine(err))
		}
		found = append(found, here...)
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(bytes.TrimSuffix(document, []byte("\n")))
		out.WriteString("\n")
	}
	return out.Bytes(), found, nil
}

func (in *injector) find(document []byte) ([]inject.Finding, error) {
	object, err := yaml.YAMLToJSON(document)
	if err != nil {
		return nil, err
	}
	return inject.Find(object, in.settings)
}

// patched is a document with the operations done: in YAML, if there are any, and
// otherwise as it was, to the letter.
func patched(document []byte, found []inject.Finding) ([]byte, error) {
	var operations []inject.Operation
	for _, f := range found {
		operations = append(operations, f.Operations...)
	}
	if len(operations) == 0 {
		return document, nil
	}
	// The same key twice would be lost, so it is refused.
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

// tell says what became of each pod that somebody may wonder about.
func tell(w io.Writer, found []inject.Finding) {
	asked := false
	for _, f := range found {
		switch f.Outcome {
		case inject.Injected:
			fmt.Fprintf(w, "%s: got the agent\n", f.Object)
		case inject.AlreadyInjected:
			fmt.Fprintf(w, "%s: has the agent already\n", f.Object)
		case inject.LabelMisplaced:
			fmt.Fprintf(w, "%s: the label %s must be on its pods, in the template\n", f.Object, v1.LabelAgent)
		case inject.NotOptedIn:
			continue
		}
		asked = true
	}
	if !asked {
		fmt.Fprintf(w, "nothing asked for the agent: pods do with the label %s: %s\n", v1.LabelAgent, v1.AgentEnabled)
	}
}
