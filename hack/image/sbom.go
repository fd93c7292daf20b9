package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"os"

	"github.com/conclave-dev/conclave/hack/image/spdx"
)

// writeSBOM writes an SBOM from the build info of the binary.
func (r recipe) writeSBOM(file, binary, digest string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	document, err := spdx.FromBuildInfo(info, spdx.Subject{
		Name:        r.Title(),
		Version:     r.Version,
		License:     constantLabels["org.opencontainers.image.licenses"],
		File:        "./" + r.Name(),
		FileSHA256:  hex.EncodeToString(sum[:]),
		ImageDigest: digest,
		Created:     r.Created,
	}).JSON()
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, document, 0o644); err != nil {
		return fmt.Errorf("cannot write the SBOM: %w", err)
	}
	return nil
}
