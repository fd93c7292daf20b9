package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/conclave-dev/conclave/hack/internal/gobuild"
)

// writeFormula writes the formula by which Homebrew installs the plugin from the archives of a GitHub release.
func (r *release) writeFormula() error {
	var formula strings.Builder
	fmt.Fprintf(&formula, `class Conclave < Formula
  desc "Inspect groups of pods that elect a coordinator"
  homepage %q
  version %q
  license "Apache-2.0"
`, repository, strings.TrimPrefix(r.version, "v"))
	for _, system := range []struct{ os, block string }{{"darwin", "on_macos"}, {"linux", "on_linux"}} {
		fmt.Fprintf(&formula, "\n  %s do\n", system.block)
		for _, processor := range []struct{ architecture, block string }{{"amd64", "on_intel"}, {"arm64", "on_arm"}} {
			file, _ := r.archiveOf(plugin, gobuild.Platform{OS: system.os, Architecture: processor.architecture})
			sum, err := checksum(filepath.Join(r.output, file))
			if err != nil {
				return err
			}
			fmt.Fprintf(&formula, "    %s do\n      url %q\n      sha256 %q\n    end\n", processor.block, r.download(file), sum)
		}
		formula.WriteString("  end\n")
	}
	formula.WriteString(`
  def install
    bin.install "kubectl-conclave", "kubectl_complete-conclave"
  end

  test do
    system bin/"kubectl-conclave", "--help"
  end
end
`)
	return r.done("conclave.rb", os.WriteFile(filepath.Join(r.output, "conclave.rb"), []byte(formula.String()), 0o644))
}
