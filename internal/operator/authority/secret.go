package authority

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// SecretName is the name of the Secret that the authorities are kept in.
const SecretName = "conclave-ca"

// The keys of the Secret.
const (
	signingCert = "ca.crt"
	signingKey  = "ca.key"
	nextCert    = "next.crt"
	nextKey     = "next.key"
	formerCert  = "former.crt"
	since       = "since"
)

// write puts a State into a Secret.
func write(state State, secret *corev1.Secret) {
	secret.Data = map[string][]byte{since: []byte(state.Since.UTC().Format(time.RFC3339))}
	for key, value := range map[string][]byte{
		signingCert: state.Signing.Cert, signingKey: state.Signing.Key,
		nextCert: state.Next.Cert, nextKey: state.Next.Key,
		formerCert: state.Former.Cert,
	} {
		if len(value) > 0 {
			secret.Data[key] = value
		}
	}
}

// read understands what write wrote. An empty Secret has no authority yet.
func read(secret *corev1.Secret) (State, error) {
	if len(secret.Data) == 0 {
		return State{}, nil
	}
	var state State
	var err error
	if state.Since, err = time.Parse(time.RFC3339, string(secret.Data[since])); err != nil {
		return State{}, unreadable(secret, since, err)
	}
	for _, root := range []struct {
		into      *Root
		cert, key string
		needed    bool
	}{
		{&state.Signing, signingCert, signingKey, true},
		{&state.Next, nextCert, nextKey, false},
		{&state.Former, formerCert, "", false},
	} {
		pair := identity.Pair{Cert: secret.Data[root.cert], Key: secret.Data[root.key]}
		if len(pair.Cert) == 0 && !root.needed {
			continue
		}
		if *root.into, err = parse(pair, root.key != ""); err != nil {
			return State{}, unreadable(secret, root.cert, err)
		}
	}
	return state, nil
}

// unreadable never has a new authority made in the place of one that somebody
// may still be able to restore.
func unreadable(secret *corev1.Secret, key string, err error) error {
	return fmt.Errorf("the key %s of Secret %s/%s isn't what the manager wrote: restore the Secret, or delete it to have it made anew: %w",
		key, secret.Namespace, secret.Name, err)
}

func parse(pair identity.Pair, signs bool) (Root, error) {
	if signs {
		a, err := identity.ParseCA(pair)
		if err != nil {
			return Root{}, err
		}
		return Root{Pair: pair, Until: a.NotAfter()}, nil
	}
	block, rest := pem.Decode(pair.Cert)
	if block == nil || len(rest) > 0 {
		return Root{}, errors.New("it must hold one certificate, in PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return Root{}, err
	}
	return Root{Pair: pair, Until: cert.NotAfter}, nil
}

// fresh makes an authority.
func fresh() (Root, error) {
	a, pair, err := identity.NewCA("Conclave", Valid)
	if err != nil {
		return Root{}, err
	}
	return Root{Pair: pair, Until: a.NotAfter()}, nil
}
