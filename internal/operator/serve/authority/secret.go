package authority

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// SecretName is the name of the Secret that stores the CAs.
const SecretName = "conclave-ca"

// The keys of the Secret.
const (
	signingCertKey = "ca.crt"
	signingKeyKey  = "ca.key"
	nextCertKey    = "next.crt"
	nextKeyKey     = "next.key"
	formerCertKey  = "former.crt"
	sinceKey       = "since"
)

// encodeState replaces the data of a Secret, and the annotation, by a State.
func encodeState(state State, secret *corev1.Secret) {
	secret.Data = map[string][]byte{sinceKey: []byte(state.Since.UTC().Format(time.RFC3339))}
	for key, value := range map[string][]byte{
		signingCertKey: state.Signing.Cert, signingKeyKey: state.Signing.Key,
		nextCertKey: state.Next.Cert, nextKeyKey: state.Next.Key,
		formerCertKey: state.Former.Cert,
	} {
		if len(value) > 0 {
			secret.Data[key] = value
		}
	}
	switch {
	case state.Requested:
		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, RotateAnnotation, RotateNow)
	case requestsRotation(secret):
		delete(secret.Annotations, RotateAnnotation)
	}
}

func requestsRotation(secret *corev1.Secret) bool {
	return secret.Annotations[RotateAnnotation] == RotateNow
}

// requestProblem describes an annotation that requests nothing, "" if there is none.
func requestProblem(secret *corev1.Secret) string {
	value, found := secret.Annotations[RotateAnnotation]
	if !found || value == RotateNow {
		return ""
	}
	return fmt.Sprintf("annotation %s of Secret %s/%s must be %q, got %q", RotateAnnotation, secret.Namespace,
		secret.Name, RotateNow, value)
}

// decodeState reads the State that encodeState wrote. An empty Secret yields a State without a CA.
func decodeState(secret *corev1.Secret) (State, error) {
	if len(secret.Data) == 0 {
		return State{}, nil
	}
	state := State{Requested: requestsRotation(secret)}
	var err error
	if state.Since, err = time.Parse(time.RFC3339, string(secret.Data[sinceKey])); err != nil {
		return State{}, decodeError(secret, sinceKey, err)
	}
	for _, ca := range []struct {
		into      *CA
		cert, key string
		required  bool
	}{
		{&state.Signing, signingCertKey, signingKeyKey, true},
		{&state.Next, nextCertKey, nextKeyKey, false},
		{&state.Former, formerCertKey, "", false},
	} {
		pair := identity.Pair{Cert: secret.Data[ca.cert], Key: secret.Data[ca.key]}
		if len(pair.Cert) == 0 && !ca.required {
			continue
		}
		if *ca.into, err = parseCA(pair, ca.key != ""); err != nil {
			return State{}, decodeError(secret, ca.cert, err)
		}
	}
	return state, nil
}

// decodeError describes a Secret that somebody else changed. The manager doesn't
// replace its CA, because a user may still be able to restore the Secret.
func decodeError(secret *corev1.Secret, key string, err error) error {
	return fmt.Errorf("key %s of Secret %s/%s isn't what the manager wrote: restore the Secret, or replace it by one "+
		"without data to create a new CA: %w",
		key, secret.Namespace, secret.Name, err)
}

func parseCA(pair identity.Pair, signs bool) (CA, error) {
	if signs {
		ca, err := identity.ParseCA(pair)
		if err != nil {
			return CA{}, err
		}
		return CA{Pair: pair, NotAfter: ca.NotAfter()}, nil
	}
	block, rest := pem.Decode(pair.Cert)
	if block == nil || len(rest) > 0 {
		return CA{}, errors.New("value must be one certificate in PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return CA{}, err
	}
	return CA{Pair: pair, NotAfter: cert.NotAfter}, nil
}

// newCA creates a CA.
func newCA() (CA, error) {
	ca, pair, err := identity.NewCA("Conclave", CAValidity)
	if err != nil {
		return CA{}, err
	}
	return CA{Pair: pair, NotAfter: ca.NotAfter()}, nil
}
