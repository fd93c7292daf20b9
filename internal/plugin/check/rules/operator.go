package rules

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

const install = "Install Conclave: docs/install.md describes how."

func checkOperator(f *Facts) []Finding {
	switch len(f.Operators) {
	case 0:
		return []Finding{{Problem, "operator", "No operator is installed in this cluster.", install}}
	case 1:
		all := []Finding{checkReplicas(&f.Operators[0])}
		for _, lacked := range f.Operators[0].Lacks {
			all = append(all, Finding{
				Problem, all[0].Object, "It lacks the permission to " + lacked + ".", "Apply the manifests of the operator again.",
			})
		}
		return all
	}
	return []Finding{{
		Problem, "operator",
		fmt.Sprintf("Operators are installed in several namespaces: %s.", strings.Join(f.operatorNamespaces(), ", ")),
		"A cluster has one operator: these take permissions and the webhook from each other. Delete the namespaces of the " +
			"others, and install the one that remains again.",
	}}
}

// operator returns the operator of the cluster, or nil if there are none or several.
func (f *Facts) operator() *Operator {
	if len(f.Operators) != 1 {
		return nil
	}
	return &f.Operators[0]
}

// current returns that all is well with what is true only while an operator runs.
func (f *Facts) current(object, message string) Finding {
	if f.Unknown[Operators] == "" && !slices.ContainsFunc(f.Operators, func(o Operator) bool { return o.Available > 0 }) {
		return Finding{Level: Unknown, Object: object, Message: "No operator is available, so this may not be true: " +
			message}
	}
	return Finding{Level: OK, Object: object, Message: message}
}

func (f *Facts) operatorNamespaces() (namespaces []string) {
	for i := range f.Operators {
		namespaces = append(namespaces, f.Operators[i].Namespace)
	}
	slices.Sort(namespaces)
	return namespaces
}

func checkReplicas(o *Operator) Finding {
	object := "operator in namespace " + o.Namespace
	message := fmt.Sprintf("%d of %d replicas of %s are available.", o.Available, o.Wanted, o.Image)
	see := fmt.Sprintf("See: kubectl get pods -n %s -l app.kubernetes.io/name=conclave", o.Namespace)
	switch {
	case o.Available == 0:
		return Finding{
			Problem, object, message, "Elections continue. Statuses, Services and certificates need the operator. " + see,
		}
	case o.Available < o.Wanted:
		return Finding{Warning, object, message, see}
	case o.Wanted < 2:
		return Finding{
			Warning, object, message,
			"With one replica, statuses and Services don't follow elections while it restarts. Use two.",
		}
	}
	return Finding{Level: OK, Object: object, Message: message}
}

// expiryWarning is longer than the operator needs to renew a CA bundle.
const expiryWarning = 14 * 24 * time.Hour

func checkWebhook(f *Facts) []Finding {
	const object = "webhook configuration conclave"
	if f.Webhook == nil {
		return []Finding{
			{Warning, object, "There is no webhook, so new pods get no agents.", "Apply the manifests of the operator again."},
		}
	}
	if len(f.Webhook.Webhooks) == 0 {
		return []Finding{{Problem, object, "It has no webhooks, so new pods get no agents.", "Apply config/webhook again."}}
	}
	var all []Finding
	for i := range f.Webhook.Webhooks {
		all = append(all, checkHook(f, &f.Webhook.Webhooks[i])...)
	}
	if len(all) == 0 {
		all = append(all, f.current(object, "The API server calls the operator for new pods, and trusts its certificate."))
	}
	return all
}

func checkHook(f *Facts, w *admissionregistrationv1.MutatingWebhook) (all []Finding) {
	object := "webhook " + w.Name
	namespaces := f.operatorNamespaces()
	if s := w.ClientConfig.Service; s != nil && len(namespaces) > 0 && !slices.Contains(namespaces, s.Namespace) {
		all = append(all, Finding{
			Problem, object,
			fmt.Sprintf("It calls the namespace %s, but the operator is in %s.", s.Namespace, strings.Join(namespaces, " or ")),
			"Pods that opted in are refused. Apply the manifests of the operator again.",
		})
	}
	expiry, found := lastExpiry(w.ClientConfig.CABundle)
	switch {
	case !found:
		all = append(all, Finding{
			Problem, object, "It has no CA bundle.",
			"Pods that opted in are refused. The operator writes the bundle: see its logs.",
		})
	case expiry.Before(f.Now):
		all = append(all, Finding{Problem, object, "Its CA expired at " + expiry.UTC().Format(time.RFC3339) +
			".", "Pods that opted in are refused. See the logs of the operator."})
	case expiry.Before(f.Now.Add(expiryWarning)):
		all = append(all, Finding{Warning, object, "Its CA expires at " + expiry.UTC().Format(time.RFC3339) +
			".", "See the logs of the operator: it should have renewed the CA."})
	}
	return all
}

// lastExpiry returns when the last certificate of a bundle expires.
func lastExpiry(bundle []byte) (last time.Time, found bool) {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue
		}
		if !found || certificate.NotAfter.After(last) {
			last, found = certificate.NotAfter, true
		}
	}
	return last, found
}
