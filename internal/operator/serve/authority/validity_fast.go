//go:build conclave_fastrotation

package authority

import "time"

// CertificateValidity is so short that test/e2e can wait for a rotation. Only the manager
// that it builds for that has this version.
const CertificateValidity = 10 * time.Second

// overlap is as short as it can be.
const overlap = 2 * CertificateValidity
