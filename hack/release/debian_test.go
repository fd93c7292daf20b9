package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/expect"
	"github.com/conclave-dev/conclave/internal/testing/must"
	"github.com/conclave-dev/conclave/internal/testing/need"
)

// runProgram returns the output of a program, without which the test is skipped.
func runProgram(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		need.Skip(t, name)
	}
	output, err := exec.CommandContext(t.Context(), name, arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(arguments, " "), err, output)
	}
	return string(output)
}

// writeTestPackage returns the path of a package with the small program.
func writeTestPackage(t *testing.T, r *release, platform string) string {
	t.Helper()
	must.Succeed(t, r.writePackage(t.Context(), helloAgent, platform))
	return filepath.Join(r.output, "conclave-agent_"+r.version+"_"+strings.ReplaceAll(platform, "/", "_")+".deb")
}

func TestDebianPackage(t *testing.T) {
	r := newRelease(t, root)
	r.version = "v0.2.0-rc.1"
	for _, platform := range agent.platforms {
		deb, architecture := writeTestPackage(t, r, platform), strings.TrimPrefix(platform, "linux/")
		runProgram(t, "dpkg-deb", "--info", deb)
		for field, want := range map[string]string{
			"Package": "conclave-agent", "Version": "0.2.0~rc.1", "Architecture": architecture,
			"Depends": "systemd", "Homepage": repository,
		} {
			expect.Equalf(t, strings.TrimSpace(runProgram(t, "dpkg-deb", "--field", deb, field)), want,
				"%s: %s", architecture, field)
		}
	}
	runProgram(t, "dpkg", "--compare-versions", "0.2.0~rc.1", "lt", "0.2.0")
}

// TestDebianPackageHasFolders in front of their files: dpkg creates no others. All belong to root.
func TestDebianPackageHasFolders(t *testing.T) {
	r := newRelease(t, root)
	var got []string
	for line := range strings.Lines(runProgram(t, "dpkg-deb", "--contents", writeTestPackage(t, r, "linux/amd64"))) {
		words := strings.Fields(line)
		got = append(got, strings.Join([]string{words[0], words[1], words[len(words)-1]}, " "))
	}
	want := []string{
		"drwxr-xr-x 0/0 ./", "drwxr-xr-x 0/0 ./usr/", "drwxr-xr-x 0/0 ./usr/bin/", "-rwxr-xr-x 0/0 ./usr/bin/conclave-agent",
		"drwxr-xr-x 0/0 ./usr/lib/", "drwxr-xr-x 0/0 ./usr/lib/systemd/", "drwxr-xr-x 0/0 ./usr/lib/systemd/system/",
		"-rw-r--r-- 0/0 ./usr/lib/systemd/system/conclave-agent.service",
		"drwxr-xr-x 0/0 ./usr/lib/sysusers.d/", "-rw-r--r-- 0/0 ./usr/lib/sysusers.d/conclave-agent.conf",
		"drwxr-xr-x 0/0 ./usr/share/", "drwxr-xr-x 0/0 ./usr/share/doc/", "drwxr-xr-x 0/0 ./usr/share/doc/conclave-agent/",
		"-rw-r--r-- 0/0 ./usr/share/doc/conclave-agent/copyright",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got contents\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestDebianPackageInstalls: what dpkg unpacks runs, its scripts have no errors of syntax, and systemd accepts and
// confines its unit.
func TestDebianPackageInstalls(t *testing.T) {
	r := newRelease(t, root)
	deb, folder := writeTestPackage(t, r, "linux/amd64"), t.TempDir()
	runProgram(t, "dpkg-deb", "--raw-extract", deb, folder)
	for _, script := range []string{"postinst", "prerm"} {
		path := filepath.Join(folder, "DEBIAN", script)
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("got %s with %v (%v), want an executable script", script, info, err)
		}
		runProgram(t, "sh", "-n", path)
	}
	if license, err := os.ReadFile(filepath.Join(root, "LICENSE")); err != nil {
		t.Error(err)
	} else if got, err := os.ReadFile(filepath.Join(folder, "usr/share/doc/conclave-agent/copyright")); err != nil ||
		!bytes.Equal(got, license) {
		t.Errorf("got another copyright than the LICENSE (%v)", err)
	}
	unit := filepath.Join(folder, "usr/lib/systemd/system/conclave-agent.service")
	content := must.ReadFile(t, unit)
	// systemd-analyze needs the program and the targets of this machine, so it gets the unit with the path of the unpacked
	// program.
	const start = "ExecStart=/usr/bin/conclave-agent --config"
	if !bytes.Contains(content, []byte(start)) {
		t.Fatalf("got no %q in the unit", start)
	}
	content = bytes.ReplaceAll(content, []byte("=/usr/bin/"), []byte("="+folder+"/usr/bin/"))
	if err := os.WriteFile(unit, content, 0o644); err != nil { //nolint:gosec // systemd warns of others
		t.Fatal(err)
	}
	if warnings := runProgram(t, "systemd-analyze", "verify", "--man=no", unit); warnings != "" {
		t.Errorf("got warnings of systemd-analyze:\n%s", warnings)
	}
	t.Log(runProgram(t, "systemd-analyze", "security", "--offline=yes", "--threshold=20", unit))
}
