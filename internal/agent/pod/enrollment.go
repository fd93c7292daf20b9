package pod

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

const (
	maxResponse     = 1 << 20
	responseTimeout = 10 * time.Second
)

// enroll creates a key, obtains a certificate for it from the identity service, and stores both.
func (s *Settings) enroll(ctx context.Context) error {
	token, err := s.readToken()
	if err != nil {
		return err
	}
	trusted, err := s.identityServiceCAs()
	if err != nil {
		return err
	}
	secret, request, err := newKey()
	if err != nil {
		return fmt.Errorf("cannot create a key: %w", err)
	}
	response, err := s.requestCertificate(ctx, trusted, control.EnrollmentRequest{Token: token, Request: string(request)})
	if err != nil {
		return err
	}
	pair := identity.Pair{Cert: []byte(response.Certificate), Key: secret}
	names, err := identity.Verify(pair, []byte(response.CABundle))
	if err == nil {
		err = s.checkNames(names)
	}
	if err != nil {
		return fmt.Errorf("invalid response of the identity service: %w", err)
	}
	return s.storeIdentity(pair, []byte(response.CABundle))
}

// checkNames returns an error if a certificate is for another pod.
func (s *Settings) checkNames(names identity.Names) error {
	if own := control.Witness(s.Pod); s.Witness && (len(names) != 1 || names[0] != own) {
		return fmt.Errorf("certificate must be for %s, got %s", own, names)
	} else if s.Witness {
		return nil
	}
	if name := names[0]; name.Domain != s.Namespace || name.Member != s.Pod {
		return fmt.Errorf("certificate must be for pod %s in namespace %s, got %s", s.Pod, s.Namespace, name)
	}
	return nil
}

// readToken reads the pod's token. kubelet replaces the token before it expires, so readToken reads the file for each
// enrollment.
func (s *Settings) readToken() (string, error) {
	path := filepath.Join(s.MountDir, "token")
	text, err := readSmallFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot read the token for the identity service: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("cannot read the token for the identity service: %s is empty", path)
	}
	return token, nil
}

func newKey() (secret, request []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}

// requestCertificate sends one request to the identity service. It doesn't follow
// redirects, because no other server may receive the token.
func (s *Settings) requestCertificate(ctx context.Context, trusted *x509.CertPool,
	enrollment control.EnrollmentRequest,
) (*control.EnrollmentResponse, error) {
	body, err := json.Marshal(enrollment)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		s.IdentityURL+control.CertificatesPath, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	client := &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: trusted},
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the identity service: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return nil, fmt.Errorf("cannot read the response of the identity service: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, refusedError(response.Status, text)
	}
	var decoded control.EnrollmentResponse
	if err := json.Unmarshal(text, &decoded); err != nil {
		return nil, fmt.Errorf("invalid response of the identity service: %w", err)
	}
	return &decoded, nil
}

// refusedError is the error of a response with another status than 200.
func refusedError(status string, text []byte) error {
	const most = 300
	var response control.ErrorResponse
	if json.Unmarshal(text, &response) != nil || response.Error == "" {
		response.Error = "no reason given"
	}
	if len(response.Error) > most {
		response.Error = response.Error[:most] + "..."
	}
	return fmt.Errorf("the identity service refused the request (%s): %s", status, response.Error)
}

// identityPaths returns the files of the agent's certificate, its key, and the CA bundle of the last enrollment, by
// which it trusts peers and the operator. Certificate and key are in one file, so that they always match.
func (s *Settings) identityPaths() identity.Paths {
	pair := filepath.Join(s.StateDir, "identity.pem")
	return identity.Paths{Cert: pair, Key: pair, CA: filepath.Join(s.StateDir, "trusted.pem")}
}

// storeIdentity replaces certificate, key and CA bundle. The CA bundle comes first, so that a
// reader never uses the new certificate with the previous CA bundle.
func (s *Settings) storeIdentity(pair identity.Pair, caBundle []byte) error {
	paths := s.identityPaths()
	if err := state.ReplaceFile(paths.CA, caBundle, 0o600); err != nil {
		return fmt.Errorf("cannot store the CA bundle: %w", err)
	}
	if err := state.ReplaceFile(paths.Cert, append(bytes.Clone(pair.Cert), pair.Key...), 0o600); err != nil {
		return fmt.Errorf("cannot store the certificate: %w", err)
	}
	return nil
}

// identityServiceCAs returns the CAs by which the agent trusts the identity service: those in the pod's environment, by
// which it trusts nobody else, and those of the last enrollment.
func (s *Settings) identityServiceCAs() (*x509.CertPool, error) {
	enrolled, err := os.ReadFile(s.identityPaths().CA)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read the stored CA bundle: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.CABundle)
	pool.AppendCertsFromPEM(enrolled)
	return pool, nil
}
