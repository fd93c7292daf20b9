package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
)

// writeImage writes the OCI archive and the SBOMs of a command for some platforms, and returns the digest of its image
// index.
func (r *release) writeImage(ctx context.Context, source, platforms string) (string, error) {
	command := path.Base(source)
	var report bytes.Buffer
	shown := *r
	shown.stdout = io.MultiWriter(r.stdout, &report)
	err := shown.execute(ctx, "go", "-C", "hack/image", "run", "-trimpath", ".", "-source", r.source, "-package",
		source, "-version", r.version,
		"-tag", r.image(command)+":"+r.version, "-index", "-platform", platforms, "-output", r.output)
	if err != nil {
		return "", err
	}
	fields := strings.Fields(report.String()) // the file, the tag, the digest and the size
	if len(fields) < 3 || !strings.HasPrefix(fields[2], "sha256:") {
		return "", fmt.Errorf("hack/image must print the digest of %s, got %q", command, report.String())
	}
	return fields[2], nil
}

// writeInstaller writes the manifests with the digests of the images.
func (r *release) writeInstaller(ctx context.Context, digests map[string]string) error {
	return r.execute(ctx, "make", "--no-print-directory", "build-installer", "INSTALLER="+
		filepath.Join(r.output, "install.yaml"),
		"IMG="+r.image("manager")+"@"+digests["manager"], "AGENT_IMG="+r.image("agent")+"@"+digests["agent"])
}
