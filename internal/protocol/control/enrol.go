package control

// CertificatesPath is where an agent POSTs an EnrollmentRequest to the operator.
const CertificatesPath = "/v1/certificates"

// EnrollmentRequest asks for a certificate.
type EnrollmentRequest struct {
	// Token is the pod's service-account token for the audience conclave.dev.
	Token string `json:"token"`
	// Request is a certificate request in PEM. Of what it says, only the key counts.
	Request string `json:"request"`
}

// EnrollmentResponse is the answer: who the agent is, and what it takes part in.
type EnrollmentResponse struct {
	// Certificate is in PEM, for the pod in each group of its annotation.
	Certificate string `json:"certificate"`
	// Authorities are the certificates of all authorities to be trusted, in PEM.
	Authorities string `json:"authorities"`
	// Documents are those of the groups that exist, in YAML: as new as the API
	// server has them, which a ConfigMap that is mounted may not be.
	Documents []string `json:"documents,omitempty"`
}

// ErrorResponse is the body of every answer that isn't one of success.
type ErrorResponse struct {
	Error string `json:"error"`
}
